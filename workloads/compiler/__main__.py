"""Kernels and levels to look at.

python -m workloads.compiler kernel                                    # SwiGLU as numba and as Triton source
python -m workloads.compiler opt FILE [--canonicalise] [--to linalg|loops]   # a program of the dialect, lowered
python -m workloads.compiler mlp [--to linalg|loops]                   # a PyTorch MLP, imported
python -m workloads.compiler device-run --out FOLDER                   # the fused kernels, measured on a CUDA device
"""

import argparse
import sys
from pathlib import Path

import torch

from simulator.errors import SpecError, XpuError


def main(arguments: list[str] | None = None) -> None:
    """Print what was asked for; exit code 2 for a file that cannot be read or is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.compiler", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("kernel", help="source of the fused kernel")
    device = commands.add_parser("device-run", help="measure the fused kernels on a CUDA device")
    device.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for lab09_h200.json")
    opt = commands.add_parser("opt", help="a program of the dialect")
    opt.add_argument("file", type=Path, metavar="FILE")
    for each in (opt, commands.add_parser("mlp", help="an MLP of PyTorch")):
        each.add_argument("--canonicalise", action="store_true", help="fold and rewrite first")
        each.add_argument("--to", choices=("linalg", "loops"), help="lower as far as that")
    options = parser.parse_args(arguments)
    try:
        if options.command == "device-run":
            from workloads.compiler.device_run import measure  # noqa: PLC0415  for this command alone

            sys.exit(measure(options.out))
        sys.stdout.write(_kernel() if options.command == "kernel" else _program(options))
    except XpuError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _kernel() -> str:
    from workloads.compiler.fusion import SwiGLU, fuse  # noqa: PLC0415  numba, for this command alone

    made = fuse(SwiGLU(), *(torch.empty(4, 8) for _ in range(3)))
    return f"{made.source}\n\n{made.triton}"


def _program(options: argparse.Namespace) -> str:
    from workloads.compiler import dialect, levels  # noqa: PLC0415  xDSL, for these commands alone
    from workloads.compiler.dialect.text import context  # noqa: PLC0415

    if options.command == "mlp":
        module = dialect.from_torch(levels.mlp(), torch.ones(levels.ROWS, levels.WIDTHS[0]))
    else:
        try:
            text = options.file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{options.file}: {error}") from None
        module = dialect.parse(text, str(options.file))
    if options.canonicalise:
        dialect.canonicalise(module, context())
    if options.to:
        module = dialect.to_linalg(module)
    return dialect.show(dialect.to_loops(module) if options.to == "loops" else module)


if __name__ == "__main__":
    main()
