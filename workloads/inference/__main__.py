"""``python -m workloads.inference``: text from the engine, and what batching and quantisation bring, measured."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import UsageError, XpuError

DATA = Path(__file__).parents[2] / "docs" / "data" / "lab06_h200.json"
_WIDTH = 120


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.inference", description="A small inference engine")
    several = top.add_subparsers(dest="command", required=True)
    text = several.add_parser("generate", help="train a tiny model and let it answer several prompts at once")
    text.add_argument("prompts", nargs="*", metavar="TEXT", help="prompts (some of the sentences that it learns)")
    text.add_argument("--tokens", type=int, default=60, metavar="N", help="of each answer (60)")
    text.add_argument("--quant", default="none", metavar="none|w8|w4", help="type of the weights (none)")
    text.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: always the likeliest (0)")
    text.add_argument("--top-p", type=float, default=1.0, metavar="P", help="share of probability to choose from (1)")
    text.add_argument("--seed", type=int, default=0, metavar="S", help="(0)")
    text.add_argument("--device", default="cpu", metavar="cpu|mps|cuda", help="(cpu)")
    text.set_defaults(run=_generate)
    bench = several.add_parser("bench", help="batching and quantisation on this machine's CPU")
    bench.add_argument("--device", default="cpu", metavar="cpu", help="(cpu); a CUDA device has 'device-run'")
    bench.add_argument("--model", default="gpt2", metavar="MODEL", help="(gpt2)")
    bench.add_argument("--requests", type=int, default=16, metavar="N", help="at once (16)")
    bench.add_argument("--out", type=Path, metavar="FOLDER", help="write lab06_cpu.json there")
    bench.set_defaults(run=_bench)
    beside = several.add_parser("compare", help="measured steps beside the same steps simulated")
    beside.add_argument("--data", type=Path, default=DATA, metavar="FILE", help="of device-run (docs/data)")
    beside.add_argument("--chip", default="h200", metavar="CHIP", help="that was measured (h200)")
    beside.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override one of its fields")
    beside.add_argument("--page", type=Path, metavar="FILE", help="write the tables into docs/lab06.md")
    beside.set_defaults(run=_compare)
    device = several.add_parser("device-run", help="check and time everything on the CUDA device of this machine")
    device.add_argument("--out", type=Path, metavar="FOLDER", help="of lab06_h200.json")
    device.add_argument("--seconds", type=float, metavar="S", help="after which no part begins any more (330)")
    device.add_argument("--dry", action="store_true", help="a little of everything on the CPU (TRITON_INTERPRET=1)")
    device.add_argument("--compile", metavar="I/N", help=argparse.SUPPRESS)  # how it calls itself
    device.set_defaults(run=_device_run)
    return top


def _generate(options: argparse.Namespace) -> int:
    from simulator.packing import bits_of  # noqa: PLC0415
    from workloads.inference.sampling import Sampling  # noqa: PLC0415
    from workloads.inference.talk import PROMPTS, talk  # noqa: PLC0415

    bits_of(options.quant)  # a typo is found before anything is trained
    _check_device(options.device)
    sampling = Sampling(options.temperature, options.top_p, options.seed)
    if options.tokens < 1:
        raise UsageError(f"--tokens {options.tokens}: needs 1 or more")
    if not all(options.prompts):
        raise UsageError("a prompt is empty; needs one character or more")
    talk(options.prompts or PROMPTS, options.tokens, options.quant, sampling, options.device, _say)
    return 0


def _bench(options: argparse.Namespace) -> int:
    from workloads.inference.bench import Work, bench, write  # noqa: PLC0415  loads torch

    if options.device != "cpu":
        raise UsageError(f"bench: --device {options.device}; it measures the CPU ('device-run' measures a CUDA device)")
    if options.requests < 1:
        raise UsageError(f"--requests {options.requests}: needs 1 or more")
    facts = bench(Work(options.model, options.requests), _say)
    if options.out is not None:
        _say(str(write(facts, options.out)))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from hw_models import load_chip  # noqa: PLC0415
    from workloads.flash_attention.page import fill  # noqa: PLC0415
    from workloads.gemm.show import tables as show  # noqa: PLC0415
    from workloads.gemm.tables import markdown  # noqa: PLC0415
    from workloads.inference.compare import load  # noqa: PLC0415
    from workloads.inference.compare_tables import tables  # noqa: PLC0415  loads torch

    found = tables(load(options.data), load_chip(options.chip, options.set))
    if options.page is None:
        show(list(found.values()), _WIDTH)
    else:
        count = fill(options.page, {name: markdown(table).rstrip() for name, table in found.items()})
        _say(f"{options.page}: {count} tables")
    return 0


def _check_device(device: str) -> None:
    """Refuse a device that this machine lacks, and say what it has."""
    import torch  # noqa: PLC0415

    found = ["cpu"]
    found += ["cuda"] if torch.cuda.is_available() else []
    found += ["mps"] if torch.backends.mps.is_available() else []
    if device not in found:
        raise UsageError(f"--device {device}: this machine has {', '.join(found)}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


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
