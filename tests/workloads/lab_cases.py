"""Reads the numeric cases of the labs: a question, its inputs, the expected numbers and their tolerance."""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "data" / "labs_cases.csv"


@dataclass(frozen=True)
class Case:
    """One row; *tolerances* are relative, one for each expected number (0: equal but for rounding)."""

    id: str
    expected: list[float]
    tolerances: list[float]

    def check(self, answer: list[float]) -> None:
        """Compare number by number."""
        assert len(answer) == len(self.expected)
        for got, wanted, tolerance in zip(answer, self.expected, self.tolerances, strict=True):
            assert got == pytest.approx(wanted, rel=max(tolerance, 1e-12), abs=0)


def cases(prefix: str) -> dict[str, Case]:
    """Return the cases of a lab, such as ``L03-``, by id; not those that expect a sentence instead of numbers."""
    with CASES.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith(prefix)]
    return {row["id"]: _case(row) for row in rows if row["expected"][0] in "[{-.0123456789"}


def _case(row: dict[str, str]) -> Case:
    value = json.loads(row["expected"]) if row["expected"].startswith(("[", "{")) else row["expected"]
    if isinstance(value, dict):  # named lists: one after the other
        value = [number for numbers in value.values() for number in numbers]
    expected = [float(item) for item in value] if isinstance(value, list) else [_number(value)]
    rules = [_tolerance(part) for part in row["tolerance"].split(";")]
    return Case(row["id"], expected, rules if len(rules) == len(expected) else rules[:1] * len(expected))


def _number(text: str) -> float:
    return float(text.removesuffix("M")) * (1e6 if text.endswith("M") else 1)


def _tolerance(text: str) -> float:
    found = re.search(r"rel ([\d.e-]+)(%?)", text)
    return float(found[1]) / (100 if found[2] else 1) if found else 0.0
