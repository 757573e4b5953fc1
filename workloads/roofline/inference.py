"""Formulas of transformer inference, for paper: W bytes of weights, K bytes of keys and values, P parameters."""

import math

from workloads.roofline.machine import Machine


def min_step_seconds(at: Machine, weights: float, kv: float) -> float:
    """Return (W + K) / bandwidth: no decode step is faster, whatever the batch."""
    return (weights + kv) / at.bandwidth


def step_seconds(at: Machine, weights: float, kv: float, batch: float, active: float) -> float:
    """Return K / bandwidth + max(2 B P / peak, W / bandwidth).

    Attention reads keys and values at the speed of memory at any batch; matrix products share the weights over
    the batch, and turn compute bound when it is large.  The two parts follow each other.
    """
    return kv / at.bandwidth + max(2 * batch * active / at.peak, weights / at.bandwidth)


def prefill_seconds(at: Machine, active: float, tokens: float, mfu: float = 1.0) -> float:
    """Return 2 P T / (peak MFU)."""
    return 2 * active * tokens / (at.peak * mfu)


def crossover_batch(at: Machine, weights: float, kv_each: float, flops_each: float) -> float | None:
    """Return the batch at which a decode step turns compute bound; None if it never does.

    One more sequence adds *flops_each* / peak of arithmetic and *kv_each* / bandwidth of traffic.  Where the traffic
    grows at least as fast, the batch cannot help: B = (W / bandwidth) / (flops / peak - kv / bandwidth).
    """
    gain = flops_each / at.peak - kv_each / at.bandwidth
    return weights / at.bandwidth / gain if gain > 0 else None


def capacity_batch(at: Machine, weights: float, kv_each: float) -> int:
    """Return the most sequences whose keys and values fit beside the weights; 0 if not even one does."""
    return max(0, math.floor((at.capacity - weights) / kv_each))


def chips_needed(one: Machine, nbytes: float) -> float:
    """Return how many chips *nbytes* fill, as a fraction; round up to buy them.

    >>> chips_needed(Machine(peak=1, bandwidth=1, capacity=16e9), 140e9)
    8.75
    """
    return nbytes / one.capacity


def queries_per_second(batch: float, step: float, tokens: float, chips: float = 1) -> float:
    """Return the queries that a chip answers in a second: *batch* at a time, *tokens* steps each."""
    return batch / (step * tokens * chips)


def evicted_per_step(batch: float, prompt: float, generated: float) -> float:
    """Return the cache positions that a step frees on average.

    A sequence of *prompt* + *generated* positions leaves after *generated* steps, *batch* of them one after another.
    """
    return batch * (prompt + generated) / generated


def prefill_servers_per_generator(prefill: float, step: float, generated: float, batch: float) -> float:
    """Return how many servers that prefill, *prefill* seconds a prompt, keep one that generates busy."""
    return prefill * batch / (step * generated)
