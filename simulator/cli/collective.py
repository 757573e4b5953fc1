"""``xpusim collective`` and ``xpusim systems``: how long a collective takes, by which algorithm, and why."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hw_models.interconnect.prediction import Prediction
    from simulator.system import System

_EXAMPLE = "example: xpusim collective all_reduce --system dgx-h200x16 --bytes 256MiB"


def add_parser(commands: Any) -> None:
    """Register both commands."""
    table = commands.add_parser("systems", help="list the systems of the library", description="List the systems.")
    table.set_defaults(run=run_systems)
    parser = commands.add_parser(
        "collective", help="time a collective on a system, or a table of them", description=__doc__, epilog=_EXAMPLE
    )
    parser.add_argument("pattern", metavar="COLLECTIVE", nargs="?", help="all_reduce, all_gather, reduce_scatter, ...")
    parser.add_argument("--system", metavar="SYSTEM", help="a name from 'xpusim systems', NAMExN, or a YAML file")
    parser.add_argument("--bytes", metavar="SIZE", help="buffer of one rank as NCCL's tests count it: 256MiB, 1GB")
    parser.add_argument("--algorithm", metavar="NAME", help="ring, direct, ... (the fastest)")
    parser.add_argument("--ranks", metavar="N|LIST", help="the first N chips, or chips as in 0-7,16,24 (all)")
    parser.add_argument("--data", metavar="CSV", help="a table of collectives: ASTRA-sim's columns, or NCCL's")
    parser.add_argument(
        "--convention", metavar="astra-sim|physical", help="how rows of ASTRA-sim are counted (astra-sim)"
    )
    parser.add_argument("--worst", type=int, default=10, metavar="N", help="rows to print, the worst first (10)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="override a field: links.nvlink.bandwidth=1TB/s",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run_collective)


def run_systems(options: argparse.Namespace) -> int:
    """Print one line for each system of the library."""
    from hw_models import load_system, system_names
    from simulator.cli.collective_print import print_systems

    del options
    print_systems([load_system(name) for name in system_names()])
    return 0


def run_collective(options: argparse.Namespace) -> int:
    """Time one collective, or a table of them; print, write what was asked for."""
    import json
    from pathlib import Path

    from simulator.output import check_writable, write_text

    if options.json:
        check_writable(Path(options.json))
    found = _table(options) if options.data else _one(options)
    if options.json:
        write_text(Path(options.json), json.dumps(found, indent=1, allow_nan=False) + "\n")
    return 0


def _table(options: argparse.Namespace) -> dict[str, Any]:
    from pathlib import Path

    from simulator.cli.collective_data import table
    from simulator.errors import UsageError

    for name in ("bytes", "algorithm", "ranks", "pattern"):
        if getattr(options, name) is not None:
            raise UsageError(f"{'COLLECTIVE' if name == 'pattern' else '--' + name} comes from the rows of --data")
    return table(Path(options.data), options.system, options.set, options.convention, options.worst)


def _one(options: argparse.Namespace) -> dict[str, Any]:
    from hw_models import load_system
    from hw_models.interconnect.prediction import predict
    from simulator.cli.collective_print import print_prediction
    from simulator.errors import UsageError

    missing = [name for name in ("pattern", "system", "bytes") if getattr(options, name) is None]
    if missing:
        shown = {"pattern": "COLLECTIVE", "system": "--system", "bytes": "--bytes"}
        raise UsageError(f"{' and '.join(shown[name] for name in missing)} missing; {_EXAMPLE}")
    if options.convention is not None:
        raise UsageError("--convention goes with --data")
    system = load_system(options.system, options.set)
    ranks = read_ranks(options.ranks, system.chips)
    prediction = predict(system, options.pattern, read_bytes(options.bytes), ranks, options.algorithm)
    gains = _gains(system, prediction, ranks, options.algorithm)
    print_prediction(prediction, gains)
    return prediction_json(prediction, gains)


def read_bytes(text: str) -> int:
    """*text*, such as 256MiB or 4096B, in bytes; UsageError if it is none."""
    from simulator.errors import UsageError
    from simulator.units import quantity

    try:
        return quantity(text, "B")
    except ValueError as error:
        raise UsageError(f"--bytes: {error}") from None


def read_ranks(text: str | None, chips: int) -> "Sequence[int]":
    """*text* as ranks: 8 is the first eight, 0-7,16 a list; all *chips* if None."""
    from simulator.errors import UsageError

    if text is None:
        return range(chips)
    if text.isdecimal() and len(text) < 10:
        if not 0 < int(text) <= chips:
            raise UsageError(f"--ranks {text}: the system has {chips} chips")
        return range(int(text))
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 18:
            raise UsageError(f"--ranks {text}: expected a number of ranks, or chips such as 0-7,16,24")
        if int(last or first) >= chips or int(last or first) < int(first):
            raise UsageError(f"--ranks {text}: {part} names no chips; the system has chips 0 to {chips - 1}")
        ranks += range(int(first), int(last or first) + 1)
    return ranks


def _gains(
    system: "System", prediction: "Prediction", ranks: "Sequence[int]", algorithm: str | None
) -> list[tuple[str, float]]:
    """(what would be better, factor by which the collective would be faster): each level and each latency in turn."""
    from dataclasses import replace

    from hw_models.interconnect.prediction import predict

    better: list[tuple[str, System]] = []
    for name, level in system.levels:
        if level.members > 1:
            wider = {**system.links, name: replace(level, bandwidth=2 * level.bandwidth)}
            better.append((f"twice the bandwidth of {name}", replace(system, links=wider)))
    nearer = {
        name: replace(level, latency=level.latency // 2, overhead=level.overhead // 2) for name, level in system.levels
    }
    better.append(("half the latency of all links", replace(system, links=nearer)))
    if software := system.calibration:
        protocols = {
            name: replace(each, latency=each.latency // 2, start=each.start // 2)
            for name, each in software.protocols.items()
        }
        half = replace(software, launch=software.launch // 2, protocols=protocols)
        better.append(("half the software (launch, protocol)", replace(system, calibration=half)))
    if not prediction.best.time:
        return []
    times = [
        (what, predict(other, prediction.pattern, prediction.size, ranks, algorithm).best.time)
        for what, other in better
    ]
    return [(what, prediction.best.time / time) for what, time in times]


def prediction_json(prediction: "Prediction", gains: list[tuple[str, float]]) -> dict[str, Any]:
    """The keys of ``--json`` for one collective; times in picoseconds, rates in bytes a second."""
    from simulator.version import VERSION

    best = prediction.best
    return {
        "version": VERSION,
        "system": prediction.system.name,
        "collective": prediction.pattern,
        "bytes": prediction.size,
        "ranks": prediction.ranks,
        "time_ps": best.time,
        "algorithm": best.algorithm,
        "protocol": best.protocol,
        "algorithm_bandwidth": prediction.algorithm_bandwidth if best.time else None,
        "bus_bandwidth": prediction.bus_bandwidth if best.time else None,
        "bound": best.bound,
        "options": [
            {
                "algorithm": option.algorithm,
                "protocol": option.protocol,
                "time_ps": option.time,
                "latency_ps": option.latency,
                "bound": option.bound,
                "busiest_link": option.link,
                "busiest_bytes": option.busiest.size if option.busiest else 0,
                "utilisation": option.utilisation,
                "how": option.how,
                "events": option.events,
            }
            for option in prediction.options
        ],
        "faster_with": [{"change": what, "factor": factor} for what, factor in gains],
    }
