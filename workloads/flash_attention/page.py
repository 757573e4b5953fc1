"""Tables of docs/lab08.md: each stands between two comments of the page and is written anew by ``page``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.dims import AttentionDims
from simulator.errors import OutputError, SpecError
from simulator.units import PS_PER_SECOND, binary, seconds
from workloads.flash_attention.chips import LENGTH, Needs
from workloads.flash_attention.compare import LARGE, TARGET, Row, predicted_us, within

Facts = Mapping[str, Any]
_MISSING = "Not measured yet: `python -m workloads.flash_attention device-run --out docs/data` on a CUDA device."


def load(path: Path) -> Facts | None:
    """Return what ``device-run`` wrote, or None if there is no such file; `SpecError` if it is none of its files."""
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text())
    except ValueError as error:
        raise SpecError(f"{path}: is no JSON: {error}") from None
    if not isinstance(facts, dict) or "provenance" not in facts:
        raise SpecError(f"{path}: has no 'provenance'; it should be a file that device-run wrote")
    return facts


def tables(facts: Facts | None, library: Sequence[Row], own: Sequence[Row], chips: Sequence[Needs]) -> dict[str, str]:
    """Return the text of every table by the name that the page gives it."""
    return {
        "counters": _counters(library),
        "own counters": _counters(own) if own else _nothing(facts, "counters"),
        "chips": _chips(chips),
        "checks": _checks(facts),
        "forward": _forward(facts),
        "search": _search(facts),
        "backward": _backward(facts),
        "decode": _decode(facts),
        "device": _device(facts),
    }


def fill(path: Path, found: Mapping[str, str]) -> int:
    """Write *found* into the page at *path* and return how many tables it has; `SpecError` if it lacks one."""
    try:
        text = path.read_text()
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    for name, table in found.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, middle, rest = text.partition(begin)
        _, closing, after = rest.partition(end)
        if not (middle and closing):
            raise SpecError(f"{path}: has no '{begin.strip()}' followed by '{end.strip()}'")
        text = f"{before}{begin}{table}\n{end}{after}"
    try:
        path.write_text(text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    return len(found)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rows(facts: Facts | None, part: str) -> list[Any]:
    found = None if facts is None else facts.get(part)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _nothing(facts: Facts | None, part: str) -> str:
    """What stands where a part of the file has no rows: it was not run, or why it failed."""
    found = None if facts is None else facts.get(part)
    return f"Not measured: {found['error']}." if isinstance(found, dict) and "error" in found else _MISSING


def _mb(value: float) -> str:
    return f"{value / 1e6:,.1f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}".replace("%", " %")


def _counters(rows: Sequence[Row]) -> str:
    good, count = within(rows)
    lines = [
        (
            row.case, row.kernel.name, _mb(row.read), _mb(row.kernel.reads), _mb(row.written), _mb(row.kernel.writes),
            _mb(row.seen), _percent(row.error) if row.large else "small",
            _percent(row.simulated_error) if row.large else "",
        )
        for row in rows
    ]  # fmt: skip
    head = (
        "case", "kernel", "read, MB", "formula", "written, MB", "formula", "of them seen", "error of all", "simulator"
    )  # fmt: skip
    target = f"{TARGET * 100:.0f} %"
    return f"{_table(head, lines)}\n\n{good} of {count} kernels above {LARGE / 1e6:.0f} MB are within {target}."


def _chips(chips: Sequence[Needs]) -> str:
    def turn(value: int | None) -> str:
        return "never" if value is None else f"{value:,}"

    rows = [
        (
            each.chip.name, f"{each.ridge:,.0f}", turn(each.written_turns), turn(each.turns), f"{each.rows:,}",
            binary(each.needed), binary(each.held) if each.held else "unknown",
            f"{each.fits:,}" if each.fits else "none",
            f"{each.exponentials:.3g}", f"{each.vector:,}", _time(each.pair.written.seconds),
            str(each.pair.written.bound), _time(each.pair.fused.seconds), str(each.pair.fused.bound),
        )
        for each in chips
    ]  # fmt: skip
    head = (
        "chip", "ridge, FLOP/B", "written out turns", "fused turns at", "queries a block", "SRAM for it",
        "SRAM of a core", "fits", "exp a cycle", "vector FLOP a cycle",
        f"written, {LENGTH:,}", "bound", f"fused, {LENGTH:,}", "bound",
    )  # fmt: skip
    return _table(head, rows)


def _time(value: float) -> str:
    return seconds(value * PS_PER_SECOND, 3)


def _checks(facts: Facts | None) -> str:
    rows = []
    for case in _rows(facts, "correctness"):
        if "batch" not in case:
            rows.append((case.get("error", "failed"), *[""] * 6))
            continue
        shape = f"{case['batch']} x {case['heads']}/{case['kv_heads']} x {case['q_len']}/{case['kv_len']}"
        kind = f"{'causal' if case['causal'] else 'full'}, {case['dtype']}, {case['head']}"
        torch_error = case["torch_error"]
        errors = [
            f"{case['error'][name]:.1e}" + (f" ({torch_error[name]:.1e})" if name in torch_error else "")
            for name in ("out", "dq", "dk", "dv")
        ]
        rows.append((shape, kind, *errors, "yes" if case["ok"] else "no"))
    head = ("batch x heads/key heads x queries/keys", "mask, type, head", "out", "dQ", "dK", "dV", "ok")
    return _table(head, rows) if rows else _nothing(facts, "correctness")


def _value(row: Facts, key: str, form: str = "{:,.0f}", scale: float = 1.0) -> str:
    value = row.get(key)
    return form.format(value * scale) if isinstance(value, int | float) else "failed"


def _blocks(row: Facts) -> str:
    return f"{row['queries']} x {row['keys']}, {row['warps']} warps, {row['stages']} stages"


def _forward(facts: Facts | None) -> str:
    rows = [
        (
            f"{row['length']:,}", "causal" if row["causal"] else "full", _value(row, "triton_us"),
            _value(row, "triton_tflops"), _value(row, "flash_tflops"), _value(row, "default_tflops"),
            _value(row, "of_flash", "{:.0f} %", 100), _value(row, "flash_us"),
            f"{predicted_us(_sizes(row, row['length'])):,.0f}", _blocks(row["blocks"]),
        )
        for row in _rows(facts, "forward")
    ]  # fmt: skip
    head = (
        "length",
        "mask",
        "us",
        "TFLOP/s",
        "PyTorch flash",
        "PyTorch default",
        "of flash",
        "flash, us",
        "simulator, us",
        "blocks",
    )
    return _table(head, rows) if rows else _nothing(facts, "forward")


def _sizes(row: Facts, queries: int) -> AttentionDims:
    heads, head = row["heads"], row["head"]
    causal = row.get("causal", False)
    return AttentionDims(
        row["batch"], heads, row.get("kv_heads", heads), queries, row["length"], head, head, causal=causal
    )


def _search(facts: Facts | None) -> str:
    found = {} if facts is None else facts.get("forward_search", {})
    rows = [
        (_blocks(row), "causal" if row["causal"] else "full", _value(row, "us"), _value(row, "tflops"))
        for row in found.get("tried", [])
    ]
    return _table(("blocks", "mask", "us", "TFLOP/s"), rows) if rows else _nothing(facts, "forward_search")


def _backward(facts: Facts | None) -> str:
    rows = [
        (
            f"{row['length']:,}", _value(row, "triton_us"), _value(row, "triton_tflops"), _value(row, "flash_tflops"),
            _value(row, "default_tflops"), _blocks(row["query_blocks"]), _blocks(row["key_blocks"]),
        )
        for row in _rows(facts, "backward")
    ]  # fmt: skip
    head = ("length", "us", "TFLOP/s", "PyTorch flash", "PyTorch default", "blocks of dQ", "blocks of dK, dV")
    return _table(head, rows) if rows else _nothing(facts, "backward")


def _decode(facts: Facts | None) -> str:
    rows = [
        (
            f"{row['batch']} x {row['heads']}/{row['kv_heads']}", f"{row['length']:,}",
            _value(row, "triton_us", "{:,.1f}"), _value(row, "triton_gb_per_s"),
            _value(row, "flash_gb_per_s"), _value(row, "one_part_gb_per_s"),
            _value(row, "flash_us", "{:,.1f}"), f"{predicted_us(_sizes(row, 1)):,.1f}",
        )
        for row in _rows(facts, "decode")
    ]  # fmt: skip
    head = (
        "batch x heads/key heads",
        "positions",
        "us",
        "GB/s",
        "PyTorch flash",
        "keys not split",
        "flash, us",
        "simulator, us",
    )
    return _table(head, rows) if rows else _nothing(facts, "decode")


def _device(facts: Facts | None) -> str:
    if facts is None:
        return _MISSING
    known = facts["provenance"]
    hashes = ", ".join(f"{name} {value}" for name, value in known["kernel_sha256"].items())
    return (
        f"{known['device']}, driver {known['driver']}, torch {known['torch']}, triton {known['triton']}, CUDA "
        f"{known['cuda']}, {known['date']}; kernels (SHA-256): {hashes}. {known['method']}."
    )
