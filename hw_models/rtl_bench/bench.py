"""Drives one top inside the simulator: a port is a list of beats and a duty cycle, a run is one GEMM.

Everything is sampled at the rising edge, before registers change, and written right after it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from hw_models.rtl_bench.cases import Gemm, Top, Word, activation_words, weight_words

PHASES = ("idle", "preload", "fill", "stream", "drain", "stall")
"""In the order of the codes on the port ``phase``."""


class Handles:
    """The four signals of a stream."""

    def __init__(self, dut: Any, prefix: str) -> None:
        self.valid = getattr(dut, f"{prefix}_tvalid")
        self.data = getattr(dut, f"{prefix}_tdata")
        self.last = getattr(dut, f"{prefix}_tlast")
        self.ready = getattr(dut, f"{prefix}_tready")


@dataclass(slots=True)
class Source:
    """Gives *words* on a stream; once valid, a beat stays until it is taken."""

    port: Handles
    words: Sequence[Word]
    duty: float
    rng: random.Random
    taken: int = 0
    offered: bool = False
    starved: bool = False  # in the cycle just sampled the array could have taken a beat and there was none

    def sample(self) -> None:
        ready = bool(int(self.port.ready.value))
        self.starved = ready and not self.offered
        if self.offered and ready:
            self.taken += 1
            self.offered = False

    def drive(self) -> None:
        if self.offered:
            return
        self.offered = self.taken < len(self.words) and (self.duty >= 1 or self.rng.random() < self.duty)
        self.port.valid.value = int(self.offered)
        if self.offered:
            self.port.data.value, self.port.last.value = self.words[self.taken]


@dataclass(slots=True)
class Sink:
    """Takes beats from a stream, and checks that a beat that is not taken stays as it is."""

    port: Handles
    duty: float
    rng: random.Random
    words: list[Word] = field(default_factory=list)
    ready: bool = False
    refused: Word | None = None
    blocked: bool = False

    def sample(self) -> None:
        valid = bool(int(self.port.valid.value))
        assert valid or self.refused is None, "m_results: tvalid fell before the beat was taken"
        self.blocked = valid and not self.ready
        if not valid:
            return
        word = (int(self.port.data.value), bool(int(self.port.last.value)))
        assert self.refused in (None, word), "m_results: a beat changed before it was taken"
        self.refused = None if self.ready else word
        if self.ready:
            self.words.append(word)

    def drive(self) -> None:
        self.ready = self.duty >= 1 or self.rng.random() < self.duty
        self.port.ready.value = int(self.ready)


@dataclass(slots=True)
class Run:
    """What one GEMM gave.

    words    beats of m_results
    counts   cycles by phase, from the counters; ``total`` is the free-running one over the same time
    trace    phase of every busy cycle, from the port
    waits    busy cycles in which some port kept the array waiting, seen from outside
    """

    words: list[Word]
    counts: dict[str, int]
    trace: list[str]
    waits: int


@dataclass(frozen=True, slots=True)
class Duty:
    """How often each port is willing, from 0 to 1."""

    weights: float = 1.0
    activations: float = 1.0
    results: float = 1.0


class Bench:
    """One top under test."""

    def __init__(self, dut: Any, top: Top, seed: int) -> None:
        self.dut = dut
        self.top = top
        self.rng = random.Random(seed)

    async def reset(self) -> None:
        """Start the clock and hold reset for two edges, with every input at rest."""
        dut = self.dut
        for name in ("start", "clear_counters", "s_weights_tvalid", "s_activations_tvalid", "m_results_tready"):
            getattr(dut, name).value = 0
        for name in ("size_m", "size_n", "size_k", "s_weights_tdata", "s_activations_tdata"):
            getattr(dut, name).value = 0
        dut.s_weights_tlast.value = 0
        dut.s_activations_tlast.value = 0
        dut.rst.value = 1
        Clock(dut.clk, 2, "ns").start()
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await RisingEdge(dut.clk)

    def source(self, port: str, words: Sequence[Word], duty: float) -> Source:
        return Source(Handles(self.dut, f"s_{port}"), words, duty, self.rng)

    def sink(self, duty: float) -> Sink:
        return Sink(Handles(self.dut, "m_results"), duty, self.rng)

    async def run(self, gemm: Gemm, duty: Duty, beats: int, limit: int = 30_000) -> Run:
        """Run *gemm* until *beats* result beats have come and the top is at rest again, for at most *limit* cycles."""
        dut = self.dut
        sources = [
            self.source("weights", weight_words(self.top, gemm), duty.weights),
            self.source("activations", activation_words(self.top, gemm), duty.activations),
        ]
        sink = self.sink(duty.results)
        self._start(gemm)
        ports: list[Source | Sink] = [*sources, sink]
        for port in ports:
            port.drive()
        await RisingEdge(dut.clk)
        dut.start.value = 0
        dut.clear_counters.value = 0
        for port in ports:
            port.sample()
            port.drive()
        run = await self._until_done(sources, sink, beats, limit)
        assert [source.taken for source in sources] == [len(source.words) for source in sources], "words left over"
        dut.m_results_tready.value = 0
        return run

    def _start(self, gemm: Gemm) -> None:
        for name, value in zip(("size_m", "size_n", "size_k"), gemm.shape, strict=True):
            getattr(self.dut, name).value = value
        self.dut.start.value = 1
        self.dut.clear_counters.value = 1

    async def _until_done(self, sources: list[Source], sink: Sink, beats: int, limit: int) -> Run:
        dut = self.dut
        ports: list[Source | Sink] = [*sources, sink]
        trace: list[str] = []
        waits = 0
        while True:
            await RisingEdge(dut.clk)
            phase = PHASES[int(dut.phase.value)]
            for port in ports:
                port.sample()
            if phase == "idle" and len(sink.words) >= beats:
                break
            if phase != "idle":
                trace.append(phase)
                waits += sink.blocked or any(source.starved for source in sources)
            for port in ports:
                port.drive()
            assert len(trace) < limit, "never came to an end"
        assert len(sink.words) == beats, f"{len(sink.words)} result beats, wanted {beats}"
        counts = {name: int(getattr(dut, f"cycles_{name}").value) for name in (*PHASES, "total")}
        return Run(sink.words, counts, trace, waits)
