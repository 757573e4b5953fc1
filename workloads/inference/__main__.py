"""``python -m workloads.inference``: text from the engine, and what batching and quantisation bring, measured."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import UsageError, XpuError


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.inference", description="A small inference engine")
    several = top.add_subparsers(dest="command", required=True)
    device = several.add_parser("device-run", help="check and time everything on the CUDA device of this machine")
    device.add_argument("--out", type=Path, metavar="FOLDER", help="of lab06_h200.json")
    device.add_argument("--seconds", type=float, metavar="S", help="after which no part begins any more (330)")
    device.add_argument("--dry", action="store_true", help="a little of everything on the CPU (TRITON_INTERPRET=1)")
    device.add_argument("--compile", metavar="I/N", help=argparse.SUPPRESS)  # how it calls itself
    device.set_defaults(run=_device_run)
    return top


def _device_run(options: argparse.Namespace) -> int:
    import torch  # noqa: PLC0415  the other commands load it themselves

    from workloads.inference.operator import kernels_on  # noqa: PLC0415

    if options.dry and not kernels_on("cpu"):
        raise UsageError("device-run --dry needs Triton's interpreter: set TRITON_INTERPRET=1")
    if not options.dry and not torch.cuda.is_available():
        raise UsageError("device-run needs a CUDA device; this machine has none ('bench' measures its CPU)")
    if not options.dry and not kernels_on("cuda"):
        raise UsageError("device-run: Triton is not installed (it exists for Linux only: pip install 'xpusim[triton]')")
    from workloads.inference import device_run  # noqa: PLC0415  needs Triton

    if options.compile:
        return device_run.compile_share(options.compile)
    if options.out is None:
        raise UsageError("device-run needs --out FOLDER")
    return device_run.measure(options.out, options.seconds or device_run.SECONDS, options.dry)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for bad input."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
