"""What a user reads when something is wrong, word for word."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from frontends import hf_arguments, load_factory, load_hf, trace, trace_training_step
from simulator.errors import TraceError, UsageError
from tests.frontends.models import Function, Gpt, Mlp, tokens

X = (torch.ones(4, 8),)


def message(kind: type[Exception], run: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        run()
    text = str(caught.value)
    assert "\n" not in text
    return text


def line_of(function: Callable[..., Any], text: str) -> str:
    """Where *text* stands in *function*, as errors write it."""
    lines, first = inspect.getsourcelines(function)
    (index,) = [number for number, line in enumerate(lines) if text in line]
    return f"{inspect.getsourcefile(function)}:{first + index} in {function.__name__}: '{lines[index].strip()}'"


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    return -x


def scales(x: Tensor) -> Tensor:
    return x * x.max().item()


def loops(x: Tensor) -> Tensor:
    for _ in range(int(x[0, 0])):
        x = x + 1
    return x


def lists(x: Tensor) -> list[int]:
    return x.argmax(-1).tolist()


@pytest.mark.parametrize(
    ("program", "text"), [(branches, "if x.sum()"), (scales, ".item()"), (loops, "for _"), (lists, ".tolist()")]
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_value_that_depends_on_data(program: Callable[..., Any], text: str, device: str) -> None:
    assert message(TraceError, lambda: trace(Function(program), (X[0].to(device),))) == (
        f"data-dependent control flow at {line_of(program, text)} reads the value of a tensor, which depends on the "
        "input; a trace knows shapes, not values"
    )


def masks(x: Tensor) -> Tensor:
    return x[x > 0]


def test_a_shape_that_depends_on_data() -> None:
    assert message(TraceError, lambda: trace(Function(masks), X)) == (
        f"data-dependent control flow at {line_of(masks, 'x[x')} makes a tensor whose shape depends on values "
        "(aten.index), which depends on the input; a trace knows shapes, not values"
    )


def fails(x: Tensor) -> Tensor:
    raise ValueError("no such\n  thing")


def test_a_module_that_raises() -> None:
    assert message(TraceError, lambda: trace(Function(fails), X)) == (
        f"the module Function raised ValueError: no such thing at {line_of(fails, 'raise')}"
    )


def test_shapes_that_do_not_fit() -> None:
    assert message(TraceError, lambda: trace(Mlp(), (torch.ones(4, 9),))) == (
        "the module Mlp raised RuntimeError: a and b must have same reduction dim, but got [4, 9] X [8, 32]. at "
        + line_of(Mlp.forward, "return")
    )


def test_a_sequence_longer_than_the_context() -> None:
    assert message(TraceError, lambda: trace(Gpt(1), tokens(1, 33))) == (
        "sequence longer than the model's context: wpe looks up row 32 of a table of 32 rows at "
        + line_of(Gpt.forward, "self.wpe")
    )


@pytest.mark.parametrize(
    ("program", "args", "kwargs", "text"),
    [
        (3, X, None, "the program must be a torch.nn.Module, got int"),
        (Mlp(), X[0], None, "args must be a tuple or list of the module's arguments, got Tensor"),
        (Mlp(), X, 3, "kwargs must be a dict of the module's named arguments, got int"),
        (Mlp(), (3, "a"), None, "no tensor among the arguments of Mlp: got int, str"),
        (Mlp(), (), None, "no tensor among the arguments of Mlp: got nothing"),
        (Mlp(), (X[0].to_sparse(),), None,
         "a tensor of layout torch.sparse_coo cannot be traced; wanted a dense (strided) one"),
    ],
)  # fmt: skip
def test_arguments_that_are_none(program: Any, args: Any, kwargs: Any, text: str) -> None:
    assert message(TraceError, lambda: trace(program, args, kwargs)) == text


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("bf61", "unknown dtype 'bf61'; did you mean 'bf16'? (known: fp64, fp32, tf32, fp16, bf16, fp8, int64, int32, "
                 "int16, int8, int4, bool)"),
        ("int4", "dtype int4: a trace casts weights and inputs to fp64, fp32, tf32, fp16, bf16 only; for another type "
                 "the module itself must hold quantised weights and call quantised operators"),
    ],
)  # fmt: skip
def test_a_dtype_that_no_cast_reaches(dtype: str, text: str) -> None:
    assert message(UsageError, lambda: trace(Mlp(), X, dtype=dtype)) == text


def divides(output: Tensor, x: Tensor) -> Tensor:
    return 1 / 0 * output.sum()


def test_what_is_wrong_with_a_training_step() -> None:
    def step(**options: Any) -> Callable[[], Any]:
        return lambda: trace_training_step(Mlp(), X, **options)

    assert message(UsageError, step(optimizer="adam")) == (
        "unknown optimizer 'adam'; did you mean 'adamw'? (known: adamw, sgd, none)"
    )
    assert message(TraceError, step(loss=lambda output, x: output)) == (
        "the loss must be a tensor with one element, got shape (4, 8)"
    )
    assert message(TraceError, step(loss=lambda output, x: 1.0)) == (
        "the loss must be a tensor with one element, got float"
    )
    assert message(TraceError, step(loss=divides)) == (
        f"the loss raised ZeroDivisionError: division by zero at {line_of(divides, 'return')}"
    )
    assert message(TraceError, lambda: trace_training_step(Function(torch.neg), X)) == (
        "nothing to train: the loss depends on no parameter that needs a gradient"
    )
    assert message(TraceError, lambda: trace_training_step(Function(lambda x: 3), X)) == (
        "the module returned int without a floating-point tensor to take a loss of"
    )


FACTORIES = """
import torch
from torch import nn

SIZE = 4

def good(width=4, phase="prefill"):
    return nn.Linear(width, width), (torch.zeros(2, width),)

def with_kwargs(width):
    return nn.Linear(width, width), (), {"input": torch.zeros(2, width)}

def reads_constants():
    rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
    return nn.Sequential(*(nn.Dropout(rate) for rate in rates)), torch.zeros(2, 4)

def fails():
    raise KeyError("weights")

def alone():
    return nn.Linear(4, 4)

def negative():
    return nn.Linear(-4, 4), (torch.zeros(2, 4),)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "user.py"
    path.write_text(FACTORIES)
    return path


def test_factories_that_work(file: Path) -> None:
    module, args, kwargs = load_factory(f"{file}:good", {"width": 8}, optional={"phase": "train", "batch": 3})
    assert (args[0].shape, args[0].device.type, kwargs) == ((2, 8), "meta", {})
    assert next(module.parameters()).device.type == "meta"
    assert len(trace(module, args, kwargs)) == 1
    module, args, kwargs = load_factory(f"{file}:with_kwargs", {"width": 8})
    assert len(trace(module, args, kwargs)) == 1
    module, args, kwargs = load_factory(f"{file}:reads_constants")
    assert [layer.p for layer in module.children()] == [0.0, 0.5, 1.0]


def test_factories_that_do_not(file: Path, tmp_path: Path) -> None:
    def load(name: str, **kwargs: Any) -> Callable[[], Any]:
        return lambda: load_factory(f"{file}:{name}", kwargs)

    names = "nn, good, with_kwargs, reads_constants, fails, alone, negative"
    assert message(UsageError, lambda: load_factory("user")) == (
        "'user' is no factory: expected the form path.py:factory"
    )
    assert message(UsageError, lambda: load_factory("no.py:f")) == "no.py:f: there is no file no.py"
    assert message(UsageError, load("godo")).startswith(f"{file} has no 'godo'; did you mean 'good'? (it has: ")
    assert names.removeprefix("nn, ") in message(UsageError, load("godo"))
    assert message(UsageError, load("SIZE")) == (f"{file}:SIZE must be a function that returns (module, args), got int")
    assert message(UsageError, load("good", widht=3)) == (
        f"{file}:good takes no 'widht'; did you mean 'width'? (it takes: width, phase)"
    )
    assert message(UsageError, load("with_kwargs")) == f"{file}:with_kwargs needs a value for width"
    assert message(UsageError, load("alone")) == (
        f"{file}:alone must return (module, args) or (module, args, kwargs), got Linear"
    )
    assert message(TraceError, load("fails")) == (
        f"the factory {file}:fails raised KeyError: 'weights' at {file}:18 in fails: 'raise KeyError(\"weights\")'"
    )
    assert message(TraceError, load("negative")) == (
        f"the factory {file}:negative raised RuntimeError: Trying to create tensor with negative dimension -4: "
        f"[4, -4] at {file}:24 in negative: 'return nn.Linear(-4, 4), (torch.zeros(2, 4),)'"
    )
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_package\n")
    assert message(TraceError, lambda: load_factory(f"{broken}:f")) == (
        f"importing {broken} raised ModuleNotFoundError: No module named 'no_such_package' at {broken}:1 in <module>: "
        "'import no_such_package'"
    )


def test_hugging_face_models_that_are_not() -> None:
    assert message(UsageError, lambda: load_hf("lama")) == (
        "unknown Hugging Face model type 'lama'; did you mean 'llama'?"
    )
    assert message(UsageError, lambda: load_hf("llama", {"hiden_size": "64"})) == (
        "llama has no configuration key 'hiden_size'; did you mean 'hidden_size'?"
    )
    assert message(UsageError, lambda: load_hf("llama", {"hidden_size": "big"})).startswith(
        "llama: transformers refuses this configuration: "
    )
    gpt2 = load_hf("gpt2", {"n_layer": 1})
    assert message(UsageError, lambda: hf_arguments(gpt2, "prefill", 1, 1025)) == (
        "seq 1025 is longer than the context of GPT2LMHeadModel, 1024 positions"
    )
    assert message(UsageError, lambda: hf_arguments(gpt2, "decode", 1, 1, 2000)) == (
        "context 2000 is longer than the context of GPT2LMHeadModel, 1024 positions"
    )
    assert message(UsageError, lambda: hf_arguments(gpt2, "prefill", -1, 8)) == "batch must be at least 1, got -1"
    assert message(UsageError, lambda: hf_arguments(gpt2, "decode", 1, 8)) == "context must be at least 1, got 0"
    assert message(UsageError, lambda: hf_arguments(gpt2, "prefil", 1, 8)) == (
        "unknown phase 'prefil'; did you mean 'prefill'? (known: prefill, decode, train)"
    )


def test_a_parameter_that_is_no_plain_tensor() -> None:
    class Odd(torch.Tensor):
        pass

    class Holder(nn.Module):
        odd: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("odd", torch.ones(3).as_subclass(Odd))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.odd

    assert message(TraceError, lambda: trace(Holder(), (torch.ones(3),))) == (
        "odd is a Odd; wanted a plain tensor or parameter"
    )


def stops(x: Tensor) -> Tensor:
    raise SystemExit(3)


def test_a_module_that_ends_the_program() -> None:
    expected = f"the module Function raised SystemExit: 3 at {line_of(stops, 'raise SystemExit')}"
    assert message(TraceError, lambda: trace(Function(stops), X)) == expected
