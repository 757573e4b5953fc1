"""FlashAttention with numpy's means: the same algorithm as the kernels, block by block, on any device and in any type.

`attention` and `backward` are what runs where there is no GPU; they keep no score beyond one block.  `plain` and
`plain_backward` write the scores out, in fp64, and are what everything is held to.
"""
# mypy: disallow-untyped-calls=False

import math

import torch
from torch import Tensor

_BLOCK = 128


def attention(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, block_q: int = _BLOCK, block_k: int = _BLOCK
) -> tuple[Tensor, Tensor]:
    """Return output [batch, heads, queries, head size] and log-sum-exp [batch, heads, queries] in fp32 or fp64.

    Each block of queries goes over the blocks of keys that its mask leaves; see `online` for one step.
    """
    q, k, v = _wide(query, key, value)
    out, logsum = torch.empty_like(q), q.new_empty(q.shape[:-1])
    for first in range(0, q.shape[2], block_q):
        rows = slice(first, min(first + block_q, q.shape[2]))
        state = q.new_zeros((*q.shape[:2], rows.stop - first, q.shape[3] + 2))
        acc, total, top = state[..., 2:], state[..., 0], state[..., 1] - math.inf
        for start in range(0, _end(rows.stop, q, k, causal), block_k):
            keys = slice(start, min(start + block_k, k.shape[2]))
            scores = _scores(q, k, rows, keys, causal, scale)
            acc, total, top = online(acc, total, top, scores, v[:, :, keys])
        out[:, :, rows] = acc / total[..., None]
        logsum[:, :, rows] = top + total.log()
    return torch.empty_like(query).copy_(out), logsum if query.dtype == torch.float64 else logsum.float()


def online(acc: Tensor, total: Tensor, top: Tensor, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take one block of *scores* [..., rows, keys] and its *values* [..., keys, columns] into a running softmax.

    *top* is the largest score of each row so far, *total* the sum of exp(score - top), *acc* the sum of
    exp(score - top) x value; where the maximum grows, both sums shrink by exp(old top - new top).

    >>> none, lowest = torch.zeros(1, 0), torch.tensor([-math.inf])
    >>> _, total, top = online(none, torch.zeros(1), lowest, torch.tensor([[1.0, 3.0]]), torch.zeros(2, 0))
    >>> round(float(total), 6), float(top)  # exp(1 - 3) + exp(3 - 3)
    (1.135335, 3.0)
    """
    highest = torch.maximum(top, scores.amax(-1))
    weights = (scores - highest[..., None]).exp()
    shrink = (top - highest).exp()
    return acc * shrink[..., None] + weights @ values, total * shrink + weights.sum(-1), highest


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsum: Tensor, causal: bool, scale: float,
    block: int = _BLOCK,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return dQ, dK and dV; the weights of each block are exp(scores - logsum), computed again."""
    q, k, v = _wide(query, key, value)
    grad, out = grad.to(q.dtype), out.to(q.dtype)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    delta = (grad * out).sum(-1, keepdim=True)
    for first in range(0, q.shape[2], block):
        rows = slice(first, min(first + block, q.shape[2]))
        for start in range(0, _end(rows.stop, q, k, causal), block):
            keys = slice(start, min(start + block, k.shape[2]))
            weights = (_scores(q, k, rows, keys, causal, scale) - logsum[:, :, rows, None]).exp()
            dv[:, :, keys] += weights.mT @ grad[:, :, rows]
            d_scores = weights * (grad[:, :, rows] @ v[:, :, keys].mT - delta[:, :, rows]) * scale
            dq[:, :, rows] += d_scores @ k[:, :, keys]
            dk[:, :, keys] += d_scores.mT @ q[:, :, rows]
    dk, dv = (each.unflatten(1, (key.shape[1], -1)).sum(2) for each in (dk, dv))  # query heads that share a key head
    wanted = ((query, dq), (key, dk), (value, dv))
    dq, dk, dv = (torch.empty_like(like).copy_(each) for like, each in wanted)
    return dq, dk, dv


def plain(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp in fp64, with all scores written out."""
    q, k, v = _wide(query.double(), key.double(), value.double())
    scores = _scores(q, k, slice(0, q.shape[2]), slice(0, k.shape[2]), causal, scale)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def plain_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dQ, dK and dV in fp64, by autograd through `plain`."""
    leaves = [each.detach().double().requires_grad_() for each in (query, key, value)]
    with torch.enable_grad():
        out, _ = plain(leaves[0], leaves[1], leaves[2], causal, scale)
    dq, dk, dv = torch.autograd.grad(out, leaves, grad.double())
    return dq, dk, dv


def _wide(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Accumulate in fp32 at least, and repeat the key heads that query heads share."""
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    group = query.shape[1] // key.shape[1]
    k, v = (each.to(wide).repeat_interleave(group, 1) for each in (key, value))
    return query.to(wide), k, v


def _scores(q: Tensor, k: Tensor, rows: slice, keys: slice, causal: bool, scale: float) -> Tensor:
    """Scores of a block; where the mask hides a pair, minus infinity: the last query stands on the last key."""
    scores = q[:, :, rows] @ k[:, :, keys].mT * scale
    if causal:
        seen = torch.arange(rows.start, rows.stop, device=q.device)[:, None] + k.shape[2] - q.shape[2]
        scores = scores.masked_fill(torch.arange(keys.start, keys.stop, device=q.device) > seen, -math.inf)
    return scores


def _end(rows: int, q: Tensor, k: Tensor, causal: bool) -> int:
    """Keys that the queries before *rows* see at most."""
    return rows + k.shape[2] - q.shape[2] if causal else k.shape[2]
