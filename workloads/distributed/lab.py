"""Lab 10: how much chip-to-chip bandwidth does training need, and does a chip have it?"""

from typing import Any

from simulator.hardware import Chip
from simulator.units import decimal
from simulator.variants import Resource
from workloads.distributed.estimates import critical_tokens
from workloads.distributed.volume import Volume, volumes
from workloads.gemm.predict import float_type
from workloads.gpt.presets import preset
from workloads.lab import LabAnswer, LabTable

MODEL, DP, TP, SEQ = "llama-8b", 8, 8, 4096
TOKENS = (1024, 4096, 16_384, 65_536)  # of a replica in one step
WIDTHS = ("llama-1b", "llama-8b", "llama-70b")
LOSS = 0.05  # of the time of computation that sending may add
_LOSS = f"{100 * LOSS:.0f} %"


def answer(chip: Chip) -> LabAnswer:
    """Trace a step of MODEL over DP x TP ranks; compare what it sends with *chip*'s arithmetic and links."""
    dtype = float_type(chip)
    peak, links = chip.peak(dtype), link_bandwidth(chip)
    data, tensor = volumes(MODEL, DP, TP, batch=1, seq=SEQ)
    return LabAnswer(
        question="how much chip-to-chip bandwidth does training need?",
        sentence=_sentence(peak, data, tensor),
        tables=(
            _traced(peak, links, (data, tensor)),
            _by_tokens(peak, links),
            _by_width(peak, links),
        ),
        bound=Resource.COMPUTE if tensor.bandwidth(peak, LOSS) <= links else Resource.INTERCONNECT,
        verdict=_verdict(chip, links, peak, (data, tensor)),
        data={
            "model": MODEL,
            "tokens": SEQ,
            "peak": peak,
            "links": links,
            "volumes": [_facts(each, peak) for each in (data, tensor)],
        },
    )


def link_bandwidth(chip: Chip) -> int:
    """Return the B/s in each direction over all links of *chip*; 0 if it has none."""
    return chip.links.count * chip.links.bandwidth if chip.links else 0


def tensor_bandwidth(width: int, ranks: int, peak: float) -> float:
    """Return the B/s at which a tensor parallel layer of 12 h^2 weights sends as long as it computes.

    Sent: 2 (t - 1) / t x 8 T h bytes; computed: 72 T h^2 / t FLOP, forward and backward.  T cancels.
    """
    return peak / width * 2 * (ranks - 1) / 9


def _traced(peak: int, links: int, found: tuple[Volume, Volume]) -> LabTable:
    rows = [
        (
            f"{each.kind} x {each.ranks}",
            decimal(each.paper, "B"),
            decimal(each.payload, "B"),
            decimal(each.sent, "B"),
            decimal(each.bandwidth(peak), "B/s"),
            _share(each.bandwidth(peak), links),
        )
        for each in found
    ]
    columns = ("parallel", ">summed, paper", ">traced", ">a chip sends", ">equal time at", ">sending / compute here")
    note = "equal time: sending takes as long as the FLOP beside it at peak (data: the backward pass); ring, bf16"
    return LabTable(f"One step of {MODEL}, dp={DP} x tp={TP}, {SEQ:,} tokens a replica", columns, rows, note)


def _by_tokens(peak: int, links: int) -> LabTable:
    rows = [
        (f"{tokens:,}", decimal(each := critical_tokens(peak, tokens, DP), "B/s"), _share(each, links))
        for tokens in TOKENS
    ]
    columns = (">tokens a replica", ">hides gradients", ">sending / backward here")
    return LabTable(f"Data parallel, {DP} replicas: any model", columns, rows, "peak / tokens x (n - 1) / n")


_WIDTH_NOTE = (
    "peak / width x 2 (t - 1) / 9: layers of 12 h^2 weights alone; the traced step also has the whole output matrix"
)


def _by_width(peak: int, links: int) -> LabTable:
    rows = []
    for name in WIDTHS:
        need = tensor_bandwidth(preset(name).width, TP, peak)
        rows.append(
            (name, f"{preset(name).width:,}", decimal(need, "B/s"), decimal(need / LOSS, "B/s"), _share(need, links))
        )
    columns = ("model", ">width", ">equal time at", f">{_LOSS} of it at", ">sending / compute here")
    return LabTable(f"Tensor parallel, {TP} ranks: any number of tokens", columns, rows, _WIDTH_NOTE)


def _share(need: float, links: int) -> str:
    return f"{100 * need / links:.0f} %" if links else "no links"


def _sentence(peak: int, data: Volume, tensor: Volume) -> str:
    return (
        f"{MODEL} over dp={DP} x tp={TP} with {SEQ:,} tokens a replica sends {decimal(data.sent, 'B')} of gradients "
        f"and {decimal(tensor.sent, 'B')} of activations from each chip in a step: "
        f"{decimal(data.bandwidth(peak), 'B/s')} in each direction hide the gradients, and "
        f"{decimal(tensor.bandwidth(peak, LOSS), 'B/s')} keep tensor parallelism under {_LOSS} of its compute"
    )


def _verdict(chip: Chip, links: int, peak: int, found: tuple[Volume, Volume]) -> str:
    data, tensor = (each.bandwidth(peak) for each in found)
    if not links:
        return (
            f"{chip.name} has no links; links of {decimal(data, 'B/s')} in each direction would hide the gradients, "
            f"and {decimal(tensor, 'B/s')} would let tensor parallel sums take as long as the compute."
        )
    fewest = critical_tokens(peak, links, DP)
    return (
        f"{chip.name}'s links of {decimal(links, 'B/s')} {'hide' if links >= data else 'do not hide'} the gradients "
        f"(any model: from {fewest:,.0f} tokens a replica on); sums of tensor parallelism add {_share(tensor, links)} "
        "to its compute unless something else runs meanwhile."
    )


def _facts(found: Volume, peak: int) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "ranks": found.ranks,
        "payload": found.payload,
        "payload_paper": found.paper,
        "sent": found.sent,
        "flops_beside": found.hidden,
        "equal_time_bandwidth": found.bandwidth(peak),
    }
