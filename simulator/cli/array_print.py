"""What ``xpusim array`` prints: the verdict first, then what it rests on."""

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hw_models.array_model.agreement import Agreement
from hw_models.array_model.runs import DRAM, PHASES
from hw_models.array_model.scalesim import Setup
from hw_models.systolic import Array, Convention, Scratchpads
from simulator.cli.array_gemm import SRAM, Gemm
from simulator.headline import change, percent
from simulator.terminal import COLOURS
from simulator.units import PS_PER_SECOND, binary, decimal, seconds
from simulator.variants import Resource

_WIDTH = 120
_BAR = 24
_MOST_ROWS = 60
_OPERANDS = ("ifmap", "filter", "ofmap")


def print_gemm(gemm: Gemm, row: dict[str, Any]) -> None:
    """Print one GEMM: verdict, figures, phases, words, and what more or less of each resource would do."""
    console = _console()
    console.print(Text(_title(gemm), style="bold"))
    console.print(
        Text.assemble(
            (f"{str(gemm.sizing.bound).capitalize()} bound. ", f"bold {COLOURS[gemm.sizing.bound]}"), _verdict(gemm)
        )
    )
    console.print(_facts(gemm, row))
    for table in (_phases(gemm, row), _words(row), _resources(gemm)):
        console.print()
        console.print(table)


def print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print many GEMMs, one a line, and their sums."""
    console = _console()
    console.print(Text(title, style="bold"))
    cycles, stalls = (sum(row[name] for row in rows) for name in ("cycles", "stall_cycles"))
    done, could = (
        sum(row["m"] * row["n"] * row["k"] for row in rows),
        sum(row["rows"] * row["columns"] * row["cycles"] for row in rows),
    )
    console.print(
        f"{len(rows)} GEMMs, {cycles:,} cycles, {percent(stalls / cycles)} of them stalled; "
        f"cells {percent(done / could)} busy"
    )
    titles = ("M", "N", "K", "cycles", "stalls", "folds", "mapping", "busy", "SRAM words", "DRAM words")
    table = _table(("id", "array"), titles)
    for row in rows[:_MOST_ROWS]:
        table.add_row(*_cells(row))
    console.print()
    console.print(table)
    if len(rows) > _MOST_ROWS:
        console.print(Text(f"{len(rows) - _MOST_ROWS} more; --json has all of them", style="dim"))


def print_agreement(found: Sequence[Agreement]) -> None:
    """Print how many rows equal SCALE-Sim's own results; nothing if the table holds none."""
    if not found:
        return
    console = _console()
    table = _table(("SCALE-Sim's own figures in this table",), ("rows equal", "of"), "")
    for each in found:
        differs = each.equal < each.rows
        note = "" if each.sound else "not sound: see docs/systolic.md"
        style = "" if not differs else "dim" if not each.sound else "red"
        table.add_row(each.what, str(each.equal), str(each.rows), note, style=style)
    console.print()
    console.print(table)


def setup_text(setup: Setup) -> str:
    """An array and its memory in a few words."""
    text = _array(setup.array)
    if setup.pads is not None:
        text += f", {'/'.join(binary(words, 'words') for words in astuple(setup.pads))} SRAM"
    return text + ("" if math.isinf(setup.bandwidth) else f", {setup.bandwidth:g} words a cycle")


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


def _table(left: Sequence[str], right: Sequence[str], *rest: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False, pad_edge=False)
    for title in left:
        table.add_column(title, no_wrap=True)
    for title in right:
        table.add_column(title, justify="right", no_wrap=True)
    for title in rest:
        table.add_column(title)
    return table


def _array(array: Array) -> str:
    return f"{array.rows} x {array.columns} {array.dataflow}"


def _title(gemm: Gemm) -> str:
    machine = gemm.machine
    many = f"{machine.cores} arrays of " if machine.cores > 1 else ""
    whose = "our RTL" if machine.array.convention is Convention.RTL else "SCALE-Sim"
    shape = " x ".join(map(str, gemm.shape))
    return (
        f"GEMM {shape} (M x N x K) {gemm.dtype} on {many}{_array(machine.array)} at {decimal(machine.clock, 'Hz')}, "
        f"cycles as in {whose}"
    )


def _verdict(gemm: Gemm) -> str:
    return {Resource.COMPUTE: _compute, Resource.CAPACITY: _capacity, Resource.BANDWIDTH: _bandwidth}[
        gemm.sizing.bound
    ](gemm)


def _compute(gemm: Gemm) -> str:
    """Say which larger array helps, or that none does."""
    sizing = gemm.sizing
    busy = f"The cells are {percent(gemm.utilisation)} busy"
    best = min(sizing.larger, key=lambda array: sizing.larger[array], default=None)
    if best is None:
        return f"{busy}; the scratchpads hold no fold of an array twice as large."
    gain = 1 - sizing.larger[best] / sizing.seconds
    if gain < 0.1:
        return f"{busy}; an array twice as large would take only {percent(max(gain, 0))} less: the GEMM is too small."
    return f"{busy}; {best.rows} x {best.columns} cells would take {percent(gain)} less."


def _capacity(gemm: Gemm) -> str:
    sizing, word = gemm.sizing, gemm.machine.word_bytes
    assert sizing.least_pads is not None  # only a scratchpad can be too small
    assert sizing.least_bandwidth is not None
    small = [
        f"{name} {binary(word * least)} (now {binary(word * has)})"
        for name, least, has in zip(_OPERANDS, astuple(sizing.least_pads), _pads(gemm), strict=True)
        if least > has
    ]
    return (
        f"Words come again because a scratchpad is too small: {' and '.join(small)} would take "
        f"{percent(sizing.saved[Resource.CAPACITY])} less. Or {_rate(sizing.least_bandwidth)} of DRAM bandwidth."
    )


def _bandwidth(gemm: Gemm) -> str:
    sizing = gemm.sizing
    assert sizing.least_bandwidth is not None  # without memory there is nothing to wait for
    return (
        f"Waits for DRAM {percent(int(gemm.split.largest.stall_cycles) / gemm.split.cycles)} of the time; "
        f"{_rate(sizing.least_bandwidth)} would do (now {_rate(gemm.machine.bandwidth)})."
    )


def _rate(bandwidth: float) -> str:
    return "infinite" if math.isinf(bandwidth) else decimal(bandwidth, "B/s")


def _pads(gemm: Gemm) -> tuple[int, ...]:
    assert gemm.machine.pads is not None
    return astuple(gemm.machine.pads)


def _facts(gemm: Gemm, row: dict[str, Any]) -> Table:
    machine, split = gemm.machine, gemm.split
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(style="bold", justify="right", no_wrap=True)
    table.add_column(style="dim")
    rate = 2 * math.prod(gemm.shape) / row["seconds"]
    peak = 2 * machine.array.cells * machine.cores * machine.clock
    table.add_row("time", seconds(row["seconds"] * PS_PER_SECOND), f"{split.cycles:,} cycles")
    what = f"{decimal(rate, 'FLOP/s')} of {decimal(peak, 'FLOP/s')} (multiply-add = 2)"
    table.add_row("utilisation", percent(gemm.utilisation), what)
    folds = f"of the cells hold something, over {row['folds']:,} fold{'s' if row['folds'] > 1 else ''}"
    table.add_row("mapping efficiency", percent(row["mapping_efficiency"]), folds)
    if machine.cores > 1:
        grid, block = (" x ".join(map(str, sizes)) for sizes in (row["grid"], gemm.block))
        idle = machine.cores - split.busy_cores
        note = f"parts of M x N x K; what follows is one core's, with a block of {block}"
        note += f"; {idle} of {machine.cores} idle" if idle else ""
        table.add_row("cores", grid, note)
    if gemm.accumulator_bytes:
        deep = gemm.accumulator_bytes // 4 // machine.array.columns
        note = f"{deep:,} x {machine.array.columns} sums of 4 B behind the array"
        table.add_row("accumulators", binary(gemm.accumulator_bytes), note)
    return table


def _phases(gemm: Gemm, row: dict[str, Any]) -> Table:
    table = _table(("phase",), ("cycles", "share"), "")
    parts = [(name, row["phases"][name]) for name in PHASES] + [("stall", row["stall_cycles"])]
    if gemm.split.reduction_cycles:
        parts.append(("reduction", gemm.split.reduction_cycles))
    for name, cycles in parts:
        share = cycles / gemm.split.cycles
        colour = COLOURS[Resource.BANDWIDTH if name == "stall" else Resource.COMPUTE]
        table.add_row(name, f"{cycles:,}", percent(share), Text("█" * round(_BAR * share), style=colour))
    table.add_row("all", f"{gemm.split.cycles:,}", "", "", style="bold")
    return table


def _words(row: dict[str, Any]) -> Table:
    """SRAM and DRAM words of each operand; without scratchpads there is no DRAM."""
    dram = row["dram_bytes"] is not None
    m, n, k = row["block"]
    once = (m * k, k * n, m * n)
    table = _table(("operand",), ("SRAM words", "SRAM bytes", *(("DRAM words", "DRAM bytes") if dram else ())), "")
    for at, name in enumerate(_OPERANDS):
        words = [row[SRAM[at]], *([row[DRAM[at]]] if dram else ())]
        again = words[-1] / once[at]
        note = f"moves {again:.2f} times" if dram and again > 1.005 else ""
        table.add_row(name, *_both(words, row["word_bytes"]), note)
    sums = [sum(row[name] for name in SRAM), *([sum(row[name] for name in DRAM)] if dram else ())]
    table.add_row("all", *_both(sums, row["word_bytes"]), "", style="bold")
    return table


def _both(words: Sequence[int], word_bytes: int) -> list[str]:
    return [text for count in words for text in (f"{count:,}", binary(word_bytes * count))]


def _resources(gemm: Gemm) -> Table:
    """Each resource: what there is, what more of it would do, and how little would be enough."""
    machine, sizing, word = gemm.machine, gemm.sizing, gemm.machine.word_bytes
    table = _table(("resource", "now"), ("binds", "+10 %"), "enough, within 5 % of unlimited")
    has = {
        Resource.COMPUTE: f"{machine.array.cells * machine.cores:,} cells at {decimal(machine.clock, 'Hz')}",
        Resource.BANDWIDTH: _rate(machine.bandwidth),
    }
    least = {Resource.COMPUTE: ""}
    if machine.pads is not None and sizing.least_pads is not None and sizing.least_bandwidth is not None:
        has[Resource.CAPACITY] = _three(machine.pads, word)
        least[Resource.BANDWIDTH] = _rate(sizing.least_bandwidth)
        least[Resource.CAPACITY] = _three(sizing.least_pads, word)
    for resource in (Resource.COMPUTE, Resource.BANDWIDTH, Resource.CAPACITY):
        if resource in least:
            shown = Text(str(resource), style=COLOURS[resource])
            saved, ten = percent(sizing.saved[resource]), change(-sizing.ten_percent[resource])
            table.add_row(shown, has[resource], saved, ten, least[resource])
    return table


def _three(pads: Scratchpads, word_bytes: int) -> str:
    return ", ".join(
        f"{name} {binary(word_bytes * words)}" for name, words in zip(_OPERANDS, astuple(pads), strict=True)
    )


def _cells(row: dict[str, Any]) -> list[str]:
    dram = [row[name] for name in DRAM]
    sums = sum(row[name] for name in SRAM), None if None in dram else sum(dram)
    counts = [row[name] for name in ("m", "n", "k", "cycles", "stall_cycles", "folds")]
    return [
        row["id"],
        f"{row['rows']} x {row['columns']} {row['dataflow']}",
        *(f"{count:,}" for count in counts),
        percent(row["mapping_efficiency"]),
        percent(row["utilisation"]),
        *("" if words is None else f"{words:,}" for words in sums),
    ]
