"""The closed form and the traced graph know nothing of each other; products, attention and their bytes must agree."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from frontends import trace
from simulator.dtypes import DType
from simulator.graph import OperatorGraph, OpKind, Role
from tests.workloads.gpt_configs import MOE, PARALLEL
from workloads.gpt import Config, preset, preset_names
from workloads.gpt.estimates import kv_bytes
from workloads.gpt.parameters import parameters
from workloads.gpt.program import program
from workloads.gpt.table import step, table

Work = tuple[str, str, int, int, int]  # path, kind, FLOP, bytes read, bytes written


def traced(config: Config, phase: str, batch: int, length: int) -> OperatorGraph:
    work = program(config, phase, batch, seq=length, context=length)
    return trace(work.module, work.args, work.kwargs, workload=work.workload, dtype="bf16")


def of_graph(graph: OperatorGraph, batch: int, heads: int, queries: int) -> Counter[Work]:
    """Count the products; a traced attention also writes one float32 a row, which the backward pass would need."""
    found: Counter[Work] = Counter()
    for op in graph:
        path = re.sub(r"\.\d+\.", ".*.", op.module)
        if op.kind is OpKind.MATMUL:
            found[path, "matmul", op.flops, op.reads, op.writes] += 1
        elif op.kind is OpKind.ATTENTION:
            found[path, "attention", op.flops, op.reads, op.writes - 4 * batch * heads * queries] += 1
    return found


def of_table(config: Config, phase: str, batch: int, length: int) -> Counter[Work]:
    found: Counter[Work] = Counter()
    for row in table(config, step(phase, batch, length)):
        if row.kind in ("matmul", "attention"):
            found[row.module.split("/")[0], row.kind, row.flops, row.reads, row.writes] += row.count
    return found


@pytest.mark.parametrize(("phase", "batch", "length"), [("prefill", 2, 24), ("decode", 3, 40)])
@pytest.mark.parametrize("config", [*map(preset, preset_names()), MOE, PARALLEL], ids=lambda config: config.name)
def test_every_product_agrees_in_flop_and_bytes(config: Config, phase: str, batch: int, length: int) -> None:
    config = replace(config, layers=2)
    graph = traced(config, phase, batch, length)
    queries = 1 if phase == "decode" else length
    assert of_graph(graph, batch, config.heads, queries) == of_table(config, phase, batch, length)


@pytest.mark.parametrize("name", ["gpt2", "llama-1b", "qwen3-0.6b"])
def test_weights_and_cache_have_the_bytes_of_the_closed_form(name: str) -> None:
    config = preset(name)
    graph = traced(config, "decode", batch=2, length=64)
    assert graph.bytes_of(Role.WEIGHT) == 2 * parameters(config).total
    assert graph.bytes_of(Role.CACHE) == kv_bytes(config, 2, 64, DType.BF16)
    assert not graph.uncovered
