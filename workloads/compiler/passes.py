"""What the passes do to whole models on a chip, and who has to write what is left."""

from collections.abc import Iterator
from dataclasses import dataclass

from frontends import trace
from simulator.costs import compute_model
from simulator.dtypes import DType
from simulator.graph import MATRIX_KINDS, OperatorGraph
from simulator.hardware import Chip
from simulator.passes import INDUCTOR, PassReport
from simulator.simulation import compiled_graph
from workloads import build
from workloads.compiler.fusion.rule import NAME, registered

MODELS, PHASES = ("gpt2", "llama-8b"), ("prefill", "decode")
SEQ, CONTEXT = 512, 1024
EPILOGUE = "epilogue"  # not in the default pipeline, which leaves matrix products to a library


@dataclass(frozen=True, slots=True)
class ModelPasses:
    """One model in one phase: what each pass did, *epilogue* last, and what the rule of this lab does alone.

    library   seconds of kernels that no pass writes (matrix products, attention) after the default passes; *generated*
              those of all others.
    """

    model: str
    phase: str
    reports: tuple[PassReport, ...]
    rule: PassReport
    library: float
    generated: float

    @property
    def by_hand(self) -> float:
        """Share of the time in kernels that a compiler calls and does not write."""
        return self.library / (self.library + self.generated)


def every(chip: Chip) -> Iterator[ModelPasses]:
    """Compile each model in each phase for *chip*."""
    dtype = next((each for each in (DType.BF16, DType.FP16) if each in chip.matrix.dtypes), DType.BF16)
    for model in MODELS:
        for phase in PHASES:
            program = build(model, phase, seq=SEQ, context=CONTEXT)
            graph = trace(program.module, program.args, program.kwargs, workload=program.workload, dtype=str(dtype))
            yield passes_of(model, phase, graph, chip)


def passes_of(model: str, phase: str, graph: OperatorGraph, chip: Chip) -> ModelPasses:
    """Compile *graph* for *chip*: the default passes, then epilogues; and the rule of this lab by itself."""
    default = compiled_graph(graph, chip, passes=INDUCTOR)
    last = compiled_graph(default.graph, chip, passes=(EPILOGUE,))
    with registered():
        rule = compiled_graph(graph, chip, passes=(NAME,))
    seconds = [0.0, 0.0]
    for op, cost in zip(default.graph, compute_model("tile", chip).costs(default.graph), strict=True):
        seconds[op.kind in MATRIX_KINDS] += cost.time / 1e12
    return ModelPasses(model, phase, (*default.reports, *last.reports), rule.reports[0], seconds[1], seconds[0])
