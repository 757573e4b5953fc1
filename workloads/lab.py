"""What a lab answers: the question, one sentence, tables, and what binds, for `xpusim lab`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.variants import Resource


@dataclass(frozen=True, slots=True)
class LabTable:
    """Rows of text under *columns*; a column whose title begins with ``>`` is set to the right.

    note  conventions or sources, printed below in one line; may be empty.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class LabAnswer:
    """The answer of one lab.

    question  what the lab asks; *sentence* answers it with its most important numbers.
    bound     the resource that binds on the chip asked about; *verdict* says what that asks of a SoC.
    data      all numbers behind it, ready for JSON, in base units.
    """

    question: str
    sentence: str
    tables: Sequence[LabTable]
    bound: Resource
    verdict: str
    data: Mapping[str, Any]
