"""Lab 8: why fusion makes attention compute-bound, and what that asks of a SoC."""

from collections.abc import Sequence
from typing import Any

from simulator.hardware import Chip
from simulator.units import PS_PER_SECOND, binary, decimal, seconds
from simulator.variants import Resource
from workloads.flash_attention.chips import HEAD, HEADS, LENGTH, Block, Needs, Pair, by_sram, needs, pairs
from workloads.lab import LabAnswer, LabTable


def answer(chip: Chip) -> LabAnswer:
    """Play attention written out and fused on *chip* over the length of the sequence, then over the SRAM of a core."""
    found, lengths, blocks = needs(chip), pairs(chip), by_sram(chip)
    return LabAnswer(
        question="why does fusion make attention compute-bound, and what does it ask of a SoC?",
        sentence=_sentence(found),
        tables=(_by_length(chip, lengths), _by_sram(chip, blocks, found)),
        bound=found.pair.fused.bound,
        verdict=_verdict(found),
        data={
            "heads": HEADS,
            "head_dim": HEAD,
            "dtype": str(found.dtype),
            "ridge_flop_per_byte": found.ridge,
            "queries_from_which_compute_binds": found.turns,
            "queries_of_a_block": found.rows,
            "sram_bytes_of_that_block": found.needed,
            "sram_bytes_of_a_core": found.held,
            "exponentials_per_cycle_and_core": found.exponentials,
            "lengths": [_pair_data(each) for each in lengths],
            "sram": [_block_data(each) for each in blocks],
        },
    )


def _sentence(found: Needs) -> str:
    written, fused = found.pair.written, found.pair.fused
    return (
        f"Written out, {HEADS} heads over {LENGTH:,} positions move {decimal(written.traffic, 'B')} on "
        f"{found.chip.name} ({found.written_flop_per_byte:.0f} FLOP a byte, at any length: less than the ridge of "
        f"{found.ridge:.0f}) and take {_time(written.seconds)}; fused they move {decimal(fused.traffic, 'B')} "
        f"({found.fused_flop_per_byte:,.0f} FLOP a byte) and take {_time(fused.seconds)}, because scores that stay on "
        f"the chip leave Q, K, V and the output, which grow with the length and not with its square."
        if found.written_flop_per_byte < found.ridge
        else f"{found.chip.name} has a ridge of {found.ridge:.0f} FLOP a byte, which attention written out reaches "
        f"too ({found.written_flop_per_byte:.0f}): fusion saves {decimal(written.traffic - fused.traffic, 'B')} of "
        f"{decimal(written.traffic, 'B')}, and {_time(written.seconds)} become {_time(fused.seconds)}."
    )


def _verdict(found: Needs) -> str:
    turn = (
        f"It is bound by arithmetic from {found.turns:,} queries at {LENGTH:,} keys on, so decode never is."
        if found.turns is not None and found.turns > 1
        else "Arithmetic binds from the first query on."
        if found.turns == 1
        else f"Even {LENGTH:,} queries leave it bound by bandwidth."
    )
    have = f"a core has {binary(found.held)}" if found.held else "a core has none described"
    return (
        f"{turn} Where keys are fetched anew for each block, a block needs {found.rows:,} queries, that is "
        f"{binary(found.needed)} of SRAM with scores and output in fp32 ({have}); a cache that holds the keys of the "
        f"heads at work does the same with smaller blocks. The next limit is the exponential: "
        f"{found.exponentials:.3g} a cycle and core would keep up with the matrix unit, one for every "
        f"{2 * HEAD} multiply-adds."
    )


def _time(value: float) -> str:
    return seconds(value * PS_PER_SECOND, 3)


def _by_length(chip: Chip, found: Sequence[Pair]) -> LabTable:
    rows = [
        (
            f"{each.length:,}", decimal(each.written.traffic, "B"), decimal(each.fused.traffic, "B"),
            _time(each.written.seconds), _time(each.fused.seconds), f"{each.speedup:.2f}", str(each.written.bound),
            str(each.fused.bound),
        )
        for each in found
    ]  # fmt: skip
    return LabTable(
        title=f"Attention of {HEADS} heads of {HEAD} on {chip.name}, written out and fused",
        columns=(">length", ">bytes", ">fused", ">time", ">fused", ">times faster", "bound by", "fused"),
        rows=rows,
        note="DRAM bytes and time of one sequence, no mask; written out: scores, scaling, softmax and values as one "
        "kernel each",
    )


def _by_sram(chip: Chip, found: Sequence[Block], need: Needs) -> LabTable:
    rows = []
    for each in found:
        if each.result is None:
            rows.append((binary(each.sram), "none", "", "", ""))
        else:
            result = each.result
            rows.append((
                binary(each.sram), f"{each.queries:,}", decimal(result.traffic, "B"), _time(result.seconds),
                str(result.bound),
            ))  # fmt: skip
    return LabTable(
        title=f"The same {LENGTH:,} positions, if each core of {chip.name} had this much SRAM and no cache behind it",
        columns=(">SRAM a core", ">queries a block", ">bytes", ">time", "bound by"),
        rows=rows,
        note=f"two stages of 64 keys and values in {need.dtype}, scores and output in fp32; keys and values cross once "
        "for each block of queries",
    )


def _pair_data(each: Pair) -> dict[str, Any]:
    return {
        "length": each.length,
        "written_bytes": each.written.traffic,
        "fused_bytes": each.fused.traffic,
        "written_seconds": each.written.seconds,
        "fused_seconds": each.fused.seconds,
        "written_bound": str(each.written.bound),
        "fused_bound": str(each.fused.bound),
    }


def _block_data(each: Block) -> dict[str, Any]:
    result = each.result
    bound: Resource | None = None if result is None else result.bound
    return {
        "sram_bytes": each.sram,
        "queries": each.queries,
        "bytes": None if result is None else result.traffic,
        "seconds": None if result is None else result.seconds,
        "bound": None if bound is None else str(bound),
    }
