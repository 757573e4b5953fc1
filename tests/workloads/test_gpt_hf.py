"""Same random weights, same logits as the Hugging Face implementations."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.workloads.gpt_configs import GPT2, LLAMA, QWEN3, all_logits, make, tokens
from workloads.gpt import Config
from workloads.gpt.model import Model

_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.o": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
}
_GPT2_BLOCK = {
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.o": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
}


def hf_name(name: str, config: Config) -> str:
    """Return what the Hugging Face model calls our parameter *name*."""
    gpt2 = config.norm == "layer"
    if name.startswith("blocks."):
        _, layer, rest = name.split(".", 2)
        inner, part = rest.rsplit(".", 1)
        return (
            f"transformer.h.{layer}.{_GPT2_BLOCK[inner]}.{part}"
            if gpt2
            else f"model.layers.{layer}.{_BLOCK[inner]}.{part}"
        )
    outer = {
        "embedding": "transformer.wte" if gpt2 else "model.embed_tokens",
        "position_embedding": "transformer.wpe",
        "norm": "transformer.ln_f" if gpt2 else "model.norm",
        "head": "lm_head",
    }
    module, part = name.rsplit(".", 1)
    return f"{outer[module]}.{part}"


def theirs(model: Model) -> dict[str, Tensor]:
    """Return our weights under their names; GPT-2's Conv1D stores matrices transposed."""
    transposed = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    renamed = {hf_name(name, model.config): value.detach() for name, value in model.state_dict().items()}
    return {name: value.T if name.endswith(transposed) else value for name, value in renamed.items()}


def gpt2(c: Config) -> Any:
    config = transformers.GPT2Config(
        vocab_size=c.vocab, n_embd=c.width, n_layer=c.layers, n_head=c.heads, n_inner=c.ffn, n_positions=c.context,
        layer_norm_epsilon=c.norm_eps,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama_sizes(c: Config) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab, "hidden_size": c.width, "intermediate_size": c.ffn, "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "max_position_embeddings": c.context, "rms_norm_eps": c.norm_eps, "tie_word_embeddings": c.tied,
    }  # fmt: skip


def llama(c: Config) -> Any:
    assert c.rope_scaling is not None
    rope = {
        "rope_type": "llama3", "rope_theta": c.rope_theta, "factor": c.rope_scaling.factor, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": c.rope_scaling.original,
    }  # fmt: skip
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(rope_parameters=rope, **llama_sizes(c)))


def qwen3(c: Config) -> Any:
    rope = {"rope_type": "default", "rope_theta": c.rope_theta}
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(rope_parameters=rope, **llama_sizes(c)))


@pytest.mark.parametrize(
    ("config", "make_theirs"), [(GPT2, gpt2), (LLAMA, llama), (QWEN3, qwen3)], ids=["gpt2", "llama", "qwen3"]
)
def test_logits_are_those_of_hugging_face(config: Config, make_theirs: Any) -> None:
    ours, hf, ids = make(config), make_theirs(config).eval(), tokens(config, length=40)
    hf.load_state_dict(theirs(ours), strict=True)
    with torch.no_grad():
        wanted = hf(ids).logits
    got = all_logits(ours, ids)
    assert wanted.std() > 0.5  # not lost in the tolerance
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    assert sum(p.numel() for p in ours.parameters()) == hf.num_parameters()
