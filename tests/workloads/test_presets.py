"""Configurations and programs: published sizes, shapes, and a message for every wrong request."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from simulator.errors import UsageError
from simulator.graph import Workload
from workloads import build, preset, preset_names
from workloads.gpt import Experts
from workloads.gpt.parameters import parameters

PUBLISHED = {  # elements, tied embeddings once, as the models on the Hugging Face hub report them
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-1b": 1_235_814_400,
    "llama-3b": 3_212_749_824,
    "llama-8b": 8_030_261_248,
    "llama-70b": 70_553_706_496,
    "qwen3-0.6b": 596_049_920,
}


def test_there_is_a_preset_for_each_published_model() -> None:
    assert preset_names() == tuple(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    module = build(name).module
    assert parameters(preset(name)).total == PUBLISHED[name]
    assert sum(weight.numel() for weight in module.parameters()) == PUBLISHED[name]
    assert all(weight.is_meta for weight in module.parameters())


def test_qwen3_heads_are_wider_than_its_width() -> None:
    assert preset("qwen3-0.6b").q_width == 2 * preset("qwen3-0.6b").width


@pytest.mark.parametrize("name", ["gpt2", "qwen3-0.6b"])
def test_prefill_and_decode_give_the_last_logits_and_training_all(name: str) -> None:
    vocab = preset(name).vocab
    for phase, wanted in (("prefill", (2, 1, vocab)), ("decode", (2, 1, vocab)), ("train", (2, 16, vocab))):
        program = build(name, phase, batch=2, seq=16, context=16)
        assert program.module(*program.args, **program.kwargs).shape == wanted


def test_workloads_say_what_a_run_does() -> None:
    assert build("gpt2", "prefill", batch=2, seq=16).workload == Workload("gpt2", "prefill", 2, tokens=32, context=16)
    assert build("gpt2", "decode", batch=2, context=16).workload == Workload("gpt2", "decode", 2, tokens=2, context=16)
    assert build("gpt2", "train", batch=2, seq=16).workload == Workload("gpt2", "train", 2, tokens=32, context=16)


def test_the_cache_has_room_for_the_context_and_no_more() -> None:
    # llama-8b: 2 x 32 layers x 8 heads x 128 = 65536 elements a position
    program = build("llama-8b", "decode", batch=3, context=100)
    assert sum(tensor.numel() for pair in program.kwargs["cache"] for tensor in pair) == 65536 * 3 * 100
    assert program.kwargs["position"] == 99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "lama-8b"},
            f"unknown model 'lama-8b'; did you mean 'llama-8b'? (known: {', '.join(PUBLISHED)})",
        ),
        ({"phase": "decod"}, "unknown phase 'decod'; did you mean 'decode'? (known: prefill, decode, train)"),
        ({"seq": 1025}, "gpt2 prefill: sequence is 1025, longer than the model's context 1024"),
        ({"phase": "train", "seq": 0}, "gpt2 train: sequence is 0, needs at least 1"),
        ({"phase": "decode", "context": 2000}, "gpt2 decode: context is 2000, longer than the model's context 1024"),
        ({"phase": "decode", "context": -1}, "gpt2 decode: context is -1, needs at least 1"),
        ({"batch": 0}, "gpt2 prefill: batch is 0, needs at least 1"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(**{"name": "gpt2", **arguments})  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_configuration_that_makes_no_model_is_refused() -> None:
    for change, message in (
        ({"layers": 0}, "model gpt2: layers is 0, needs at least 1"),
        ({"kv_heads": 5}, "model gpt2: 12 heads cannot share 5 key/value heads"),
        ({"window": ()}, "model gpt2: window is empty; write (0,) for full attention"),
        ({"experts": Experts(count=4, active=5, width=8)}, "model gpt2: 5 of 4 experts active"),
    ):
        with pytest.raises(UsageError) as caught:
            replace(preset("gpt2"), **change)
        assert str(caught.value) == message


def test_the_loss_is_the_cross_entropy_of_the_next_token() -> None:
    loss = build("gpt2", "train", seq=4).loss
    assert loss is not None
    uniform = torch.zeros(1, 4, 8)
    assert float(loss(uniform, torch.zeros(1, 4, dtype=torch.int64))) == pytest.approx(2.0794415)  # ln 8


def test_importing_the_presets_loads_no_torch() -> None:
    code = "import sys, workloads; workloads.preset('llama-8b'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
