"""``python -m workloads.gemm check|predict|compare|device-run``: the ladder tried, predicted, compared and measured."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_WIDTH = 140  # of tables that go to a file


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands but device-run, which has its own and needs torch and Triton only."""
    top = argparse.ArgumentParser(prog="python -m workloads.gemm", description="Lab 7: a ladder of matrix products")
    several = top.add_subparsers(dest="command", required=True)
    several.add_parser("device-run", help="measure on a CUDA device: --out FOLDER", add_help=False)
    check = several.add_parser("check", help="every step of both ladders against fp64 at odd sizes")
    check.add_argument("--json", type=Path, metavar="FILE", help="every error")
    check.set_defaults(run=checked)
    predict = several.add_parser("predict", help="traffic and time of every step, and the curve of tiles")
    _chip(predict)
    predict.add_argument("--size", type=int, default=4096, metavar="N", help="of three equal sides (4096)")
    predict.set_defaults(run=predicted)
    compare = several.add_parser("compare", help="predictions beside what device-run measured")
    _chip(compare)
    compare.add_argument("--data", type=Path, required=True, metavar="FILE", help="docs/data/lab07_h200.json")
    compare.add_argument("--json", type=Path, metavar="FILE", help="both as numbers")
    compare.add_argument("--chapter", type=Path, metavar="FILE", help="write the tables into docs/lab07.md")
    compare.add_argument("--figures", type=Path, metavar="FOLDER", help="write lab07_roofline.png, lab07_onchip.png")
    compare.set_defaults(run=compared)
    return top


def _chip(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chip", default="h200", metavar="CHIP", help="a name from 'xpusim chips', or a file (h200)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a field of the chip")


def checked(options: argparse.Namespace) -> int:
    """Run ``check``; returns 1 if a product is wrong."""
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported
    from workloads.gemm.check import cpu_ladder, gpu_ladder, triton_missing  # noqa: PLC0415
    from workloads.gemm.show import outcomes  # noqa: PLC0415

    missing = triton_missing()
    if missing:
        sys.stderr.write(missing + "\n")
    found = [*cpu_ladder(), *(() if missing else gpu_ladder("cpu"))]
    outcomes(found, _WIDTH)
    if options.json:
        options.json.write_text(json.dumps([each._asdict() for each in found], indent=1) + "\n")
    return 0 if all(each.right for each in found) else 1


def predicted(options: argparse.Namespace) -> int:
    """Run ``predict``."""
    from hw_models import load_chip  # noqa: PLC0415
    from simulator.errors import UsageError  # noqa: PLC0415
    from workloads.gemm.compare import rows  # noqa: PLC0415
    from workloads.gemm.curve import curve  # noqa: PLC0415
    from workloads.gemm.predict import float_type  # noqa: PLC0415
    from workloads.gemm.show import tables  # noqa: PLC0415
    from workloads.gemm.tables import curve_table, ladder_table  # noqa: PLC0415

    if options.size < 1:
        raise UsageError(f"--size {options.size}: needs at least 1")
    chip = load_chip(options.chip, options.set)
    points = curve(chip, (options.size,) * 3, float_type(chip))
    tables((ladder_table(options.size, rows(chip, options.size, None), chip.name), curve_table(points)), _WIDTH)
    return 0


def compared(options: argparse.Namespace) -> int:
    """Run ``compare``."""
    from hw_models import load_chip  # noqa: PLC0415
    from workloads.figure import save  # noqa: PLC0415
    from workloads.gemm.compare import SIZES, facts, load, rows  # noqa: PLC0415
    from workloads.gemm.curve import curve  # noqa: PLC0415
    from workloads.gemm.plot import onchip, roofline  # noqa: PLC0415
    from workloads.gemm.show import tables  # noqa: PLC0415
    from workloads.gemm.tables import ladder_table, write_chapter  # noqa: PLC0415

    chip, measured = load_chip(options.chip, options.set), load(options.data)
    every = {size: rows(chip, size, measured) for size in SIZES}
    shown = [ladder_table(size, found, chip.name) for size, found in every.items()]
    tables(shown, _WIDTH)
    if options.json:
        options.json.write_text(json.dumps(facts(chip, measured), indent=1) + "\n")
    if options.chapter:
        write_chapter(options.chapter, shown)
    if options.figures:
        save(roofline(chip, every[SIZES[0]]), options.figures / "lab07_roofline.png")
        points = curve(chip, (SIZES[0],) * 3)
        save(onchip(chip, points, measured.get("tiles", [])), options.figures / "lab07_onchip.png")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 1 for a wrong product, 2 for bad input."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["device-run"]:
        from workloads.gemm.device_run import main as device_run  # noqa: PLC0415  needs torch

        return device_run(given[1:])
    options = parser().parse_args(given)
    from simulator.errors import XpuError  # noqa: PLC0415

    try:
        code: int = options.run(options)
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
