"""Hugging Face models from their configuration alone: on the meta device, nothing is downloaded."""
# mypy: disallow-untyped-calls=False

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from frontends.blame import one_line
from frontends.factory import building
from frontends.inputs import rebuilt, stand_in
from frontends.tracing import run
from simulator.errors import TraceError, UsageError, nearest

_CACHES = ("cache", "past_key_values", "cache_params")  # transformers changed the name twice


def load_hf(model_type: str, config: Mapping[str, Any] | None = None, *, attention: str | None = None) -> nn.Module:
    """Return the causal language model (or, if there is none, the base model) of *model_type* on the meta device.

    config     overrides of its default configuration; a string is read as JSON if it is any (``"2"``, ``"true"``), and
               a dotted key reaches into a nested configuration.
    attention  ``"sdpa"`` or ``"eager"``; by default what transformers would choose.

    Raises UsageError without the package transformers, for an unknown type or key (with the nearest name) and for a
    configuration of which transformers cannot build a model.
    """
    auto = _transformers()
    settings = {key: _parsed(value) for key, value in (config or {}).items()}
    names = auto.models.auto.modeling_auto
    causal, base = names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, names.MODEL_MAPPING_NAMES
    if model_type not in causal and model_type not in base:
        raise UsageError(f"unknown Hugging Face model type {model_type!r}{nearest(model_type, [*causal, *base])}")
    builder = auto.AutoModelForCausalLM if model_type in causal else auto.AutoModel
    made = _configuration(auto, model_type, settings)
    try:
        with building():
            extra = {} if attention is None else {"attn_implementation": attention}
            module: nn.Module = builder.from_config(made, **extra).eval()
    except Exception as error:
        raise UsageError(f"transformers cannot build {model_type!r} as configured: {one_line(error)}") from error
    own: Any = module.config
    with suppress(Exception):  # some configurations insist on it
        own.pad_token_id = None  # transformers looks for padding among the ids, only to warn
    return module


def known_types() -> list[str]:
    """Return the names of all causal language models that transformers knows."""
    return sorted(_transformers().models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def hf_arguments(
    module: nn.Module, phase: str, batch: int, seq: int, context: int = 0
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return ``(args, kwargs)`` for one step of a causal model that `load_hf` made.

    prefill  *seq* tokens for each of *batch* sequences; returns the cache and the logits of the last token.
    decode   one token each, with a cache of *context* - 1 positions that a prefill on the meta device has made.
    train    *seq* tokens, all logits, no cache.

    Raises UsageError for sizes below one, an unknown phase, and more positions than the model has.
    """
    phases = ("prefill", "decode", "train")
    if phase not in phases:
        raise UsageError(f"unknown phase {phase!r}{nearest(phase, phases)} (known: {', '.join(phases)})")
    length, label = (context, "context") if phase == "decode" else (seq, "seq")
    for name, value in (("batch", batch), (label, length)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    limit = getattr(module.config, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < length:
        raise UsageError(f"{label} {length} is longer than the context of {type(module).__name__}, {limit} positions")
    if phase == "train":
        return (_ids(batch, seq),), {"use_cache": False}
    last = {"logits_to_keep": 1} if _takes(module, "logits_to_keep") else {}
    if phase == "prefill":
        return (_ids(batch, seq),), {"use_cache": True, **last}
    if context == 1:
        return (_ids(batch, 1),), {"use_cache": True, **last}
    return (_ids(batch, 1),), {"use_cache": True, **last, **_cache(module, batch, context - 1, last)}


def _cache(module: nn.Module, batch: int, length: int, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the cache after *length* tokens, by the name that the module takes it under, in the module's type.

    The prefill that makes it runs in bf16, the one type that grouped products of experts take.
    """
    output = run(module, (_ids(batch, length),), {"use_cache": True, **kwargs}, dtype="bf16")
    own = next((each.dtype for each in module.parameters() if each.is_floating_point()), torch.bfloat16)
    for name in _CACHES:
        cache = getattr(output, name, None) if _takes(module, name) else None
        if cache is not None:
            return {name: rebuilt(cache, lambda tensor, *_: stand_in(tensor, own), name, 0)}
    raise TraceError(f"{type(module).__name__} returned no cache to decode with (looked for {', '.join(_CACHES)})")


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.int64, device="meta")


def _takes(module: nn.Module, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _transformers() -> Any:
    try:
        import transformers  # noqa: PLC0415  an extra, and it takes seconds to load
        import transformers.models.auto.modeling_auto  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            "hf: targets need the package transformers: .venv/bin/python -m pip install -e '.[hf]'"
        ) from error
    transformers.logging.set_verbosity_error()
    return transformers


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _configuration(auto: Any, model_type: str, settings: dict[str, Any]) -> Any:
    default = auto.AutoConfig.for_model(model_type)
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        _check_key(model_type, default, key)
        home, *path = key.split(".")
        if not path:
            nested[home] = value
            continue
        inner = nested.setdefault(home, {"model_type": getattr(default, home).model_type})
        inner[".".join(path)] = value
    try:
        return auto.AutoConfig.for_model(model_type, **nested)
    except Exception as error:
        raise UsageError(f"{model_type}: transformers refuses this configuration: {one_line(error)}") from error


def _check_key(model_type: str, config: Any, key: str) -> None:
    for part in key.split("."):
        known = [*config.to_dict(), *config.attribute_map]
        if part not in known:
            raise UsageError(f"{model_type} has no configuration key {part!r}{nearest(part, known)}")
        config = getattr(config, part)
