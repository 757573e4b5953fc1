"""Hugging Face architectures from their configuration; ``hf_all.py`` beside this file does all of them."""

import pytest
import torch

from frontends import hf_arguments, load_hf, trace, trace_training_step
from simulator.graph import OpKind, Phase, Role

FAMILIES = (
    "gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi",
    "phi3", "gpt_neox", "gptj", "gpt_neo", "opt", "bloom", "falcon", "stablelm", "olmo", "olmo2", "cohere",
    "granite", "starcoder2", "gpt_oss", "deepseek_v3", "glm", "smollm3", "mpt", "codegen", "persimmon",
    "gpt_bigcode", "mamba",
)  # fmt: skip
TRAINED = ("gpt2", "llama", "mixtral", "gemma2", "gpt_oss", "deepseek_v3")


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_and_decode(family: str) -> None:
    # gpt_neo wants its kinds of layers listed one by one
    module = load_hf(family, {} if family == "gpt_neo" else {"num_hidden_layers": 2})
    for phase in ("prefill", "decode"):
        args, kwargs = hf_arguments(module, phase, batch=2, seq=32, context=64)
        graph = trace(module, args, kwargs, dtype="bf16")
        assert graph.uncovered == {}
        assert graph.model_flops > 0
        assert (graph.bytes_of(Role.CACHE) > 0) == (phase == "decode")


@pytest.mark.parametrize("family", TRAINED)
def test_training(family: str) -> None:
    module = load_hf(family, {"num_hidden_layers": 2})
    args, kwargs = hf_arguments(module, "train", batch=2, seq=32)
    graph = trace_training_step(module, args, kwargs, dtype="bf16")
    assert graph.uncovered == {}
    flops = {phase: sum(op.flops for op in graph if op.phase is phase and op.kind is OpKind.MATMUL) for phase in Phase}
    # each product has two gradients, but for the gradient of the embedded tokens, which nobody asks a product for
    assert flops[Phase.BACKWARD] == 2 * flops[Phase.FORWARD]


def test_llama_by_hand() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 1000}  # fmt: skip
    module = load_hf("llama", sizes)
    # layer: q and o 64 x 64, k and v 64 x 32, three of 64 x 160, two norms of 64; embedding, head and the last norm
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160
    args, kwargs = hf_arguments(module, "prefill", batch=2, seq=16)
    graph = trace(module, args, kwargs, dtype="bf16")
    assert graph.bytes_of(Role.WEIGHT) == 2 * (2 * (layer + 128) + 2 * 64 * 1000 + 64)
    # all tokens through the layers, the last one of each sequence through the head
    assert sum(op.flops for op in graph if op.kind is OpKind.MATMUL) == 2 * 32 * 2 * layer + 2 * 2 * 64 * 1000
    attention = [op for op in graph if op.kind is OpKind.ATTENTION]
    assert [op.module for op in attention] == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    # 2 sequences x 4 heads x (1 + ... + 16) pairs x 4 x 16 columns
    assert attention[0].flops == 2 * 4 * 136 * 64
    args, kwargs = hf_arguments(module, "decode", batch=2, seq=1, context=24)
    decode = trace(module, args, kwargs, dtype="bf16")
    # 23 positions before this one: 2 layers x (k and v) x 2 sequences x 2 heads x 16 columns x 2 B
    assert decode.bytes_of(Role.CACHE) == 23 * 2 * 2 * 2 * 2 * 16 * 2
    (first, _) = [op for op in decode if op.kind is OpKind.ATTENTION]
    assert first.flops == 2 * 4 * 24 * 64


def test_a_cache_for_a_module_in_float32_is_in_float32() -> None:
    module = load_hf("gpt2", {"n_layer": 1})
    args, kwargs = hf_arguments(module, "decode", batch=1, seq=1, context=8)
    graph = trace(module, args, kwargs)
    assert graph.bytes_of(Role.CACHE) == 7 * 2 * 768 * 4


def test_a_nested_configuration_is_reached_by_dots() -> None:
    module = load_hf("gemma3", {"text_config.num_hidden_layers": "1", "vision_config.num_hidden_layers": 1})
    assert not any(parameter.device != torch.device("meta") for parameter in module.parameters())
    assert {path.split(".")[3] for path, _ in module.named_parameters() if "language_model.layers" in path} == {"0"}
