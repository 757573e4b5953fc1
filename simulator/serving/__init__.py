"""Serving: one scheduler of continuous batching over paged KV blocks, for the real engine and the simulated clock."""

from simulator.serving.blocks import BlockPool
from simulator.serving.scheduler import Limits, Rejected, Scheduler
from simulator.serving.sequence import End, Request, Sequence, Slice, Step

__all__ = ["BlockPool", "End", "Limits", "Rejected", "Request", "Scheduler", "Sequence", "Slice", "Step"]
