"""Published configurations by name.  Importing this loads no torch."""

from dataclasses import replace

from simulator.errors import UsageError, nearest
from workloads.gpt.config import Config, RopeScaling

GPT2 = Config(
    name="gpt2",
    source="https://huggingface.co/openai-community/gpt2/blob/main/config.json",
    layers=12, width=768, heads=12, kv_heads=12, head_dim=64, ffn=3072, vocab=50257, context=1024,
    norm="layer", positions="learned", gated=False, bias=True, fused_qkv=True, tied=True,
)  # fmt: skip

LLAMA_8B = Config(
    name="llama-8b",
    source="https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json",
    layers=32, width=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256, context=131072,
    rope_theta=500000.0, rope_scaling=RopeScaling(factor=8.0),
)  # fmt: skip

LLAMA_1B = replace(
    LLAMA_8B,
    name="llama-1b",
    source="https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json",
    layers=16, width=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192,
    rope_scaling=RopeScaling(factor=32.0), tied=True,
)  # fmt: skip

QWEN3_06B = Config(
    name="qwen3-0.6b",
    source="https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/config.json",
    layers=28, width=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=151936, context=40960,
    norm_eps=1e-6, rope_theta=1e6, qk_norm=True, tied=True,
)  # fmt: skip


def _gpt2(name: str, layers: int, width: int, heads: int) -> Config:
    source = f"https://huggingface.co/openai-community/{name}/blob/main/config.json"
    return replace(
        GPT2, name=name, source=source, layers=layers, width=width, heads=heads, kv_heads=heads, ffn=4 * width
    )


_PRESETS = {
    config.name: config
    for config in (
        GPT2,
        _gpt2("gpt2-medium", layers=24, width=1024, heads=16),
        _gpt2("gpt2-large", layers=36, width=1280, heads=20),
        _gpt2("gpt2-xl", layers=48, width=1600, heads=25),
        LLAMA_1B,
        replace(
            LLAMA_1B,
            name="llama-3b",
            source="https://huggingface.co/meta-llama/Llama-3.2-3B/blob/main/config.json",
            layers=28, width=3072, heads=24, head_dim=128,
        ),
        LLAMA_8B,
        replace(
            LLAMA_8B,
            name="llama-70b",
            source="https://huggingface.co/meta-llama/Llama-3.1-70B/blob/main/config.json",
            layers=80, width=8192, heads=64, ffn=28672,
        ),
        QWEN3_06B,
    )
}  # fmt: skip


def preset_names() -> tuple[str, ...]:
    """Return the names that `preset` knows.

    >>> preset_names()[0]
    'gpt2'
    """
    return tuple(_PRESETS)


def preset(name: str) -> Config:
    """Return the configuration called *name*; UsageError with the nearest name if there is none.

    >>> preset("llama-8b").kv_width
    1024
    """
    if name not in _PRESETS:
        raise UsageError(f"unknown model {name!r}{nearest(name, _PRESETS)} (known: {', '.join(_PRESETS)})")
    return _PRESETS[name]
