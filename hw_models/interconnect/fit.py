"""Fits the ``calibration`` section of a system to measured collectives, half of them kept back.

    python -m hw_models.interconnect.fit dgx-a100 --data hw_models/data/a100/nccl_collectives.csv

The time of every plan is a sum: launch, start and step latencies of the protocol, the busiest link's time over the
protocol's efficiency, and the local copy.  Terms come from the closed forms, once; scipy fits the constants.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hw_models.interconnect import closed
from hw_models.interconnect.algorithms import FLAT
from hw_models.interconnect.fabric import Fabric
from hw_models.interconnect.group import Group
from hw_models.interconnect.measured import Measured, halves, read_nccl
from hw_models.interconnect.plans import Plan
from hw_models.loader import load_system
from simulator.errors import XpuError
from simulator.system import Protocol, Software, System

Floats = NDArray[np.float64]
_NAMES = ("ll", "ll128", "simple")
# (start, least, most) of each constant: launch in us; latency in us and efficiency by protocol; starts in us; local
# as a multiple of the link's bandwidth.  LL sends 4 bytes of flag with 4 of data, LL128 8 with 120.
_BOUNDS = (
    (8.0, 1.0, 30.0),
    (0.6, 0.01, 10.0), (1.9, 0.01, 10.0), (3.4, 0.01, 20.0),
    (0.25, 0.01, 0.5), (0.5, 0.1, 0.9375), (0.8, 0.3, 1.0),
    (2.0, 0.01, 100.0), (15.0, 0.01, 200.0),
    (2.0, 0.5, 20.0),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Terms:
    """What the time of each row is made of, in microseconds: link latency, link time, steps, share that stays."""

    latency: Floats
    sending: Floats
    steps: Floats
    share: Floats

    def times(self, x: Floats) -> Floats:
        """Microseconds of each row with constants *x*: the fastest protocol."""
        starts = (0.0, x[7], x[8])
        by_protocol = [
            x[0] + starts[p] + self.latency + self.steps * x[1 + p] + self.sending / x[4 + p] + self.share / x[9]
            for p in range(3)
        ]
        found: Floats = np.min(by_protocol, axis=0)
        return found


def terms(system: System, rows: Sequence[Measured]) -> Terms:
    """The terms of *rows* on *system*, by the algorithm that its library has for each collective."""
    return Terms(*np.array([_terms_of(system, row) for row in rows]).T)


def _terms_of(system: System, row: Measured) -> tuple[float, float, float, float]:
    group = Group(Fabric(system), range(row.ranks))
    name = "direct" if row.pattern == "all_to_all" else "ring"
    lane = FLAT[name][0](row.pattern, row.size, None, row.ranks)
    found = closed.estimate(Plan(group.lengths, (lane,)), group.view)
    assert found.busiest is not None
    share = row.size / row.ranks / found.busiest.wire.bandwidth
    return found.latency / 1e6, found.busiest.busy / 1e6, float(sum(each.repeat for each in lane)), share * 1e6


def fit(system: System, rows: Sequence[Measured], seed: int = 0) -> tuple[Software, Sequence[Measured]]:
    """Constants fitted to half of *rows*, and the rows of the other half."""
    taken, kept = halves(rows, seed)
    found, measured = terms(system, taken), np.array([row.time / 1e6 for row in taken])
    start, least, most = (np.log(np.array(column)) for column in zip(*_BOUNDS, strict=True))
    best = _search(lambda x: np.log(found.times(np.exp(x)) / measured), start, (least, most), seed)
    return _software(system, np.exp(best)), kept


def _search(error: Callable[[Floats], Floats], start: Floats, bounds: tuple[Floats, Floats], seed: int) -> Floats:
    """The best of eight searches, from *start* and from points around it."""
    rng = np.random.default_rng(seed)
    starts = [start, *(np.clip(start + rng.normal(0, 0.5, len(start)), *bounds) for _ in range(7))]
    found = [least_squares(error, each, bounds=bounds, loss="soft_l1", f_scale=0.1) for each in starts]
    best: Floats = min(found, key=lambda result: float(result.cost)).x
    return best


def _software(system: System, x: Floats) -> Software:
    starts = (0, x[7], x[8])
    protocols = {
        name: Protocol(
            latency=round(x[1 + p] * 1e6), efficiency=round(float(x[4 + p]), 4), start=round(starts[p] * 1e6)
        )
        for p, name in enumerate(_NAMES)
    }
    bandwidth = system.levels[0][1].bandwidth
    known = system.calibration.algorithms if system.calibration else {}
    return Software(
        launch=round(x[0] * 1e6), protocols=protocols, source="fitted", local=round(x[9] * bandwidth), algorithms=known
    )


def section(software: Software) -> str:
    """*software* as the lines of a system description."""
    lines = ["calibration:", f"  launch: {software.launch / 1e6:.3g} us", "  protocols:"]
    for name, protocol in software.protocols.items():
        start = f", start: {protocol.start / 1e6:.3g} us" if protocol.start else ""
        latency = f"{protocol.latency / 1e3:.4g} ns"
        lines.append(f"    {name}: {{latency: {latency}, efficiency: {protocol.efficiency:.4g}{start}}}")
    lines.append(f"  local: {round((software.local or 0) / 1e9)} GB/s")
    return "\n".join(lines)


def mean_error(system: System, rows: Sequence[Measured]) -> float:
    """Mean absolute error of *rows*, over the measured time."""
    return float(np.mean([abs(row.predicted(system).best.time / row.time - 1) for row in rows]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, and print the section and the errors on rows that were not fitted."""
    parser = argparse.ArgumentParser(prog="python -m hw_models.interconnect.fit", description=__doc__)
    parser.add_argument("system", help="a name from 'xpusim systems', or a YAML file")
    parser.add_argument(
        "--data", required=True, help="measured collectives, as hw_models/data/a100/nccl_collectives.csv"
    )
    parser.add_argument("--seed", type=int, default=0, help="which half is fitted (0)")
    options = parser.parse_args(arguments)
    try:
        system, rows = load_system(options.system), read_nccl(Path(options.data))
        software, kept = fit(system, rows, options.seed)
    except XpuError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    before, after = mean_error(system, kept), mean_error(replace(system, calibration=software), kept)
    sys.stdout.write(f"{section(software)}\n")
    sys.stdout.write(f"{len(kept)} rows not fitted: {after:.1%} off in the mean, as described before {before:.1%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
