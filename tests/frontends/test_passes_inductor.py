"""Kernels of compile mode beside those that torch.compile made of the same programs on an H200.

docs/data/passes_inductor.json says how they were counted.  Calls of libraries (products, attention) are the same
everywhere.  Of generated kernels inference has the same number, but for one: with 32 tokens Inductor does not pad the
head, because it holds such a product to be bound by bytes; the model says that padding pays.

In training the forward pass has one kernel less than Inductor's where a model has learned positions (looked up in
a kernel of their own), and the scatter into a table of embeddings stays outside a norm with long rows, which the model
would have to read twice.  The sums that the framework's library makes of partial ones are no generated kernels.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from frontends import trace
from hw_models import load_chip
from simulator.cli.validate_predict import Programs
from simulator.cli.validate_read import Measured
from simulator.graph import MATRIX_KINDS, OperatorGraph, OpKind
from simulator.passes.spaces import LIBRARY
from simulator.scope import outside
from simulator.simulation import compiled_graph
from workloads.measure.compiled import NaiveAttention

FOUND = json.loads(Path("docs/data/passes_inductor.json").read_text())
SMALL = [step for step in FOUND["steps"] if step["model"] in ("gpt-2l", "gpt-4l", "llama-2l")]
INFERENCE = [step for step in SMALL if step["phase"] != "train"]
TRAINING = [step for step in FOUND["steps"] if step["phase"] == "train"]


@pytest.fixture(scope="module")
def programs() -> Programs:
    made = Programs(Path("hw_models/data/h200/user_models.py"))
    module = made._module
    vars(module)["MODELS"] |= {
        "gpt-2l": lambda: module.GPT2(2, 768, 12),
        "gpt-4l": lambda: module.GPT2(4, 768, 12),
        "llama-2l": lambda: module.Llama(2, 2048, 32, 8, 8192),
    }
    return made


def kernels(programs: Programs, step: dict[str, Any]) -> tuple[int, int]:
    """Library calls and generated kernels of what is compiled."""
    traced, why = programs.graph(Measured(0, step, 1.0))
    assert traced is not None, why
    graph: OperatorGraph = compiled_graph(traced, load_chip("h200")).graph
    eager = outside(graph)
    inside = [op for op in graph if op.id not in eager]
    external = sum(op.kind in MATRIX_KINDS for op in inside)
    return external, len(inside) - external - sum(op.target.startswith(LIBRARY) for op in inside)


@pytest.mark.parametrize("step", INFERENCE, ids=lambda step: f"{step['model']} {step['phase']} {step['config']}")
def test_inference_has_the_kernels_that_inductor_made(programs: Programs, step: dict[str, Any]) -> None:
    external, generated = kernels(programs, step)
    padded_here_only = step["config"].get("S") == 32
    assert (external, generated) == (step["external"], step["generated"] + padded_here_only)


def test_attention_that_is_written_out_becomes_the_one_call_that_inductor_made_of_it() -> None:
    (step,) = [each for each in FOUND["steps"] if each["model"] == "naive"]
    size = [step["config"][name] for name in "BHSD"]
    q, k, v = (torch.empty(*size, dtype=torch.bfloat16, device="meta") for _ in range(3))
    traced = trace(NaiveAttention(), (q, k, v))
    assert [op.target for op in traced] == ["aten.bmm", "aten.div", "aten._softmax", "aten.bmm"]
    graph = compiled_graph(traced, load_chip("h200")).graph
    assert (step["external"], step["generated"]) == (1, 0)
    assert [op.kind for op in graph] == [OpKind.ATTENTION]
    assert graph.operators[0].nbytes == 4 * 2 * 2 * 16 * 2048 * 64  # q, k, v and the result, once each


@pytest.mark.parametrize("step", TRAINING, ids=lambda step: f"{step['model']} {step['config']}")
def test_training_has_the_kernels_that_inductor_made_within_five_percent(
    programs: Programs, step: dict[str, Any]
) -> None:
    external, generated = kernels(programs, step)
    assert external == step["external"]
    assert abs(generated / step["generated"] - 1) < 0.05
    assert abs(generated - step["generated"]) <= 1
