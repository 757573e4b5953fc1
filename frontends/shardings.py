"""How the fused operators of `frontends.fused` may be sharded, told to DTensor in its own terms."""
# mypy: disallow-untyped-calls=False, disallow-untyped-decorators=False

from functools import cache
from typing import Any

import torch

from frontends import fused  # noqa: F401  defines the operators


@cache
def register() -> None:
    """Enter the rules; once is enough.

    A norm may be split along every axis that it does not sum over, and then its weight's gradient is a partial sum;
    attention along batch and heads.
    """
    from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: PLC0415  seconds, for parallel programs only
    from torch.distributed.tensor.experimental import register_sharding  # noqa: PLC0415  the same

    ops: Any = torch.ops.xpusim
    whole = Replicate()

    @register_sharding(ops.rms_norm.default)
    def _norm(data: Any, shape: Any, weight: Any) -> Any:
        gain = whole if weight is not None else None
        split = [Shard(axis) for axis in range(len(data.shape) - len(shape))]
        return [([each, each], [each, None, gain]) for each in [whole, *split]]

    @register_sharding(ops.rms_norm_backward.default)
    def _norm_backward(gradient: Any, data: Any, shape: Any, scale: Any, weight: Any) -> Any:
        gain = whole if weight is not None else None
        split = [Shard(axis) for axis in range(len(data.shape) - len(shape))]
        return [
            ([each, _or_none(gain, whole if each is whole else Partial())], [each, each, None, each, gain])
            for each in [whole, *split]
        ]

    @register_sharding(ops.attention.default)
    def _attention(q: Any, k: Any, v: Any, mask: Any, causal: Any, dropout: Any) -> Any:
        over = _or_none(mask, whole)
        return [([each] * 2, [each] * 3 + [over, None, None]) for each in (whole, Shard(0), Shard(1))]

    @register_sharding(ops.attention_backward.default)
    def _attention_backward(
        gradient: Any, q: Any, k: Any, v: Any, output: Any, logsum: Any, mask: Any, causal: Any, dropout: Any
    ) -> Any:
        over = _or_none(mask, whole)
        return [([each] * 3, [each] * 6 + [over, None, None]) for each in (whole, Shard(0), Shard(1))]


def _or_none(given: Any, placement: Any) -> Any:
    return None if given is None else placement
