"""Formulas for data that has to cross something slower than the memory: host links, and a mesh of chips."""

from dataclasses import dataclass

from simulator.dtypes import DType
from workloads.roofline.machine import Machine


def batch_to_hide_weights(peak: float, bandwidth: float, dtype: DType = DType.BF16) -> float:
    """Return the batch at which B x D x F takes as long as fetching the D F weights over *bandwidth*.

    2 B D F / peak = bytes D F / bandwidth, whatever D and F are.
    """
    return dtype.bits / 8 * peak / (2 * bandwidth)


def width_to_hide_reduction(peak: float, bandwidth: float, shards: int = 2, dtype: DType = DType.BF16) -> float:
    """Return the contracted width D above which a product split along D is compute bound.

    Each shard does 2 B D F / shards FLOP and sends a partial result of B F elements one way; B and F cancel.
    """
    return shards * dtype.bits / 8 * peak / (2 * bandwidth)


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh of chips without wrap-around: *ports* a corner chip has, each *bandwidth* B/s one way, *hop* seconds."""

    ports: int
    bandwidth: float
    hop: float = 0.0

    def first_byte_seconds(self, hops: int) -> float:
        """Return the latency over *hops* links."""
        return hops * self.hop

    def transfer_seconds(self, nbytes: float, hops: int) -> float:
        """Return the time of a message that leaves by all ports at once and is cut through at each hop."""
        return self.first_byte_seconds(hops) + nbytes / (self.ports * self.bandwidth)

    def gather_seconds(self, nbytes: float, chips: int) -> float:
        """Return the time until one chip has all of *nbytes* spread over *chips*: its own share need not come."""
        return nbytes * (chips - 1) / chips / (self.ports * self.bandwidth)


@dataclass(frozen=True, slots=True)
class Staged:
    """Seconds of each stage through which a matrix goes from the hosts to a product on one chip."""

    load: float
    gather: float
    read: float
    compute: float

    @property
    def bottleneck(self) -> float:
        """Seconds of the slowest: stages overlap."""
        return max(self.load, self.gather, self.read, self.compute)


def staged_matmul(one: Machine, mesh: Mesh, chips: int, host_bandwidth: float, weights: float, flops: float) -> Staged:
    """Return the stages of a product whose *weights* lie in host memory, a slice behind each of *chips*.

    Every chip loads its slice at *host_bandwidth*; the mesh gathers them on one chip, which reads and multiplies.
    """
    return Staged(
        load=weights / (chips * host_bandwidth),
        gather=mesh.gather_seconds(weights, chips),
        read=weights / one.bandwidth,
        compute=flops / one.peak,
    )
