"""Lab 3: multiply-adds and bytes of one token's forward pass, by closed form."""

from collections.abc import Callable
from typing import Any

from simulator.dtypes import DType
from simulator.hardware import Chip
from simulator.units import decimal
from simulator.variants import Resource
from workloads.gpt.config import Config
from workloads.gpt.parameters import parameters
from workloads.gpt.presets import preset
from workloads.gpt.table import Row, Step, step, table
from workloads.lab import LabAnswer, LabTable

MODELS = ("gpt2", "qwen3-0.6b", "llama-8b", "llama-70b")
SHOWN = "llama-8b"
CONTEXT = 1024


def answer(chip: Chip) -> LabAnswer:
    """Count prefill and decode of published models at CONTEXT positions, and hold them against the chip's ridge."""
    ridge = chip.peak(DType.BF16) / chip.dram_bandwidth
    found = {name: _model(preset(name)) for name in MODELS}
    shown = found[SHOWN]
    one, many = shown["decode"], shown["prefill"]
    bound = Resource.BANDWIDTH if one["intensity"] < ridge else Resource.COMPUTE
    return LabAnswer(
        question="how many multiply-adds and bytes does a token's forward pass need?",
        sentence=(
            f"A token of {SHOWN} takes {decimal(one['macs'], 'MAC')} (one for each weight it passes, the rest is "
            f"attention) and, decoded alone at {CONTEXT:,} positions, {decimal(one['bytes'], 'B')} of memory traffic; "
            f"in a prompt of {CONTEXT:,} all share the weights, and a token moves {decimal(many['bytes'], 'B')}."
        ),
        tables=(_models_table(found), _kinds_table(preset(SHOWN))),
        bound=bound,
        verdict=(
            f"A token decoded alone does {one['intensity']:.2f} FLOP a byte and one of the prompt "
            f"{many['intensity']:,.0f}, against a ridge of {ridge:,.0f} on {chip.name}: a SoC needs arrays for prefill "
            f"and memory bandwidth for decode, and only weights shared between tokens make one out of the other."
        ),
        data={"context": CONTEXT, "dtype": "bf16", "ridge_flop_per_byte": ridge, "models": found},
    )


def _model(config: Config) -> dict[str, Any]:
    phases = {phase: _per_token(config, step(phase, 1, CONTEXT)) for phase in ("prefill", "decode")}
    return {"parameters": parameters(config).total, **phases}


def _per_token(config: Config, at: Step) -> dict[str, float]:
    rows = table(config, at)
    macs, nbytes = (_sum(rows, value) / at.tokens for value in (_macs, _bytes))
    return {"macs": macs, "bytes": nbytes, "intensity": 2 * macs / nbytes}


def _sum(rows: tuple[Row, ...], value: Callable[[Row], int]) -> int:
    return sum(row.count * value(row) for row in rows)


def _macs(row: Row) -> int:
    return row.macs


def _bytes(row: Row) -> int:
    return row.reads + row.writes


def _models_table(found: dict[str, dict[str, Any]]) -> LabTable:
    rows = []
    for name, model in found.items():
        for phase in ("prefill", "decode"):
            at = model[phase]
            first = (name, decimal(model["parameters"], "")) if phase == "prefill" else ("", "")
            cells = (decimal(at["macs"], ""), decimal(at["bytes"], "B"), f"{at['intensity']:,.2f}")
            rows.append((*first, phase, *cells))
    return LabTable(
        title=f"One token at {CONTEXT:,} positions, batch 1, bf16",
        columns=("model", ">parameters", "phase", ">MAC a token", ">bytes a token", ">FLOP/B"),
        rows=rows,
        note="1 MAC = 2 FLOP; every operand moved once; logits of the last position; causal attention by pairs",
    )


def _kinds_table(config: Config) -> LabTable:
    rows, at = [], {phase: step(phase, 1, CONTEXT) for phase in ("prefill", "decode")}
    tables = {phase: table(config, each) for phase, each in at.items()}
    for kind in dict.fromkeys(row.kind for row in tables["prefill"] + tables["decode"]):
        cells = [kind]
        for phase, found in tables.items():
            own, tokens = tuple(row for row in found if row.kind == kind), at[phase].tokens
            cells += [decimal(_sum(own, _macs) / tokens, ""), decimal(_sum(own, _bytes) / tokens, "B")]
        rows.append(cells)
    return LabTable(
        title=f"Where they are in {config.name}, a token",
        columns=("operators", ">prefill MAC", ">prefill bytes", ">decode MAC", ">decode bytes"),
        rows=rows,
    )
