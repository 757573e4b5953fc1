"""``python -m workloads.flash_attention``: measure on a CUDA device, or check and compare here."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import UsageError, XpuError


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.flash_attention", description="FlashAttention in Triton")
    several = top.add_subparsers(dest="command", required=True)
    device = several.add_parser("device-run", help="check and time the kernels on the CUDA device of this machine")
    device.add_argument("--out", type=Path, metavar="FOLDER", help="of lab08_h200.json")
    device.add_argument("--compile", metavar="I/N", help=argparse.SUPPRESS)  # how it calls itself
    device.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    device.set_defaults(run=_device_run)
    return top


def _device_run(options: argparse.Namespace) -> int:
    import torch  # noqa: PLC0415  the other commands answer without

    from workloads.flash_attention.operator import unavailable  # noqa: PLC0415

    if not torch.cuda.is_available():
        raise UsageError("device-run needs a CUDA device; this machine has none ('check' runs the reference instead)")
    if (missing := unavailable(torch.device("cuda"))) is not None:
        raise UsageError(f"device-run: {missing}")
    from workloads.flash_attention import device_run  # noqa: PLC0415  needs Triton

    if options.compile:
        return device_run.compile_share(options.compile)
    if options.counted:
        return device_run.run_counted()
    if options.out is None:
        raise UsageError("device-run needs --out FOLDER")
    return device_run.measure(options.out)


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
