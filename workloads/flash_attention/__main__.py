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
    device.add_argument("--seconds", type=float, metavar="S", help="to take at most, about (140)")
    device.add_argument("--compile", metavar="I/N", help=argparse.SUPPRESS)  # how it calls itself
    device.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    device.set_defaults(run=_device_run)
    check = several.add_parser("check", help="compare the operator with fp64 on this machine")
    check.set_defaults(run=_check)
    page = several.add_parser("page", help="write the tables of docs/lab08.md and its pictures")
    page.add_argument("--data", type=Path, default=Path("docs/data/lab08_h200.json"), metavar="FILE",
                      help="what device-run wrote; without it the measured tables say so")  # fmt: skip
    page.add_argument("--page", type=Path, default=Path("docs/lab08.md"), metavar="FILE", help="(docs/lab08.md)")
    page.add_argument("--figures", type=Path, metavar="FOLDER", help="write lab08_*.png there")
    page.set_defaults(run=_page)
    return top


def _check(options: argparse.Namespace) -> int:
    from workloads.flash_attention import check  # noqa: PLC0415  loads torch

    device, what = check.where()
    sys.stdout.write(f"{what}\n")
    found = check.run(device)
    for each in found:
        errors = ", ".join(f"{name} {error:.1e}" for name, error in each.errors.items())
        batch, heads, kv_heads, q_len, kv_len, head, causal = each.shape
        shape = f"{batch} x {heads}/{kv_heads} heads x {q_len}/{kv_len}, head {head}, {'causal' if causal else 'full'}"
        sys.stdout.write(f"{'ok    ' if each.ok else 'FAILED'} {shape}: {errors}\n")
    return 0 if all(each.ok for each in found) else 1


def _page(options: argparse.Namespace) -> int:
    from workloads.flash_attention import chips, compare, figures, page  # noqa: PLC0415  loads torch

    facts = page.load(options.data)
    library = compare.library_rows()
    own = compare.own_rows(facts) if facts is not None else []
    count = page.fill(options.page, page.tables(facts, library, own, chips.library()))
    sys.stdout.write(f"{options.page}: {count} tables, {'measured' if facts else 'nothing measured'}\n")
    if options.figures is not None:
        for path in figures.write(options.figures, library, facts):
            sys.stdout.write(f"{path}\n")
    return 0


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
    if options.seconds is not None and not 20 <= options.seconds <= 3600:
        raise UsageError(f"device-run: --seconds {options.seconds:g}; needs 20 to 3600")
    return device_run.measure(options.out, options.seconds or device_run.SECONDS)


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
