"""``python -m workloads.measure --out FOLDER``: measure operators and steps on the CUDA device of this machine."""

import argparse
import json
import time
from pathlib import Path

import torch

from workloads.measure.clock import say
from workloads.measure.ops import measure_ops
from workloads.measure.steps import list_kernels, load_models, measure_steps

PARTS = ("steps", "ops", "kernels")


def main() -> int:
    """Write models.csv, ops.csv, kernels.json and provenance.json into the folder."""
    parser = argparse.ArgumentParser(prog="python -m workloads.measure", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="profiling comes last: it slows launches"
    )
    parser.add_argument("--models", type=Path, default=Path("hw_models/data/h200/user_models.py"))
    parser.add_argument("--seed", type=int, default=20261201)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        say("workloads.measure needs a CUDA device; this machine has none")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "provenance.json").write_text(json.dumps(_provenance(), indent=1) + "\n")
    models = load_models(options.models)
    if "steps" in options.only:
        measure_steps(models, options.out / "models.csv", options.seed)
    if "ops" in options.only:
        measure_ops(options.out / "ops.csv", options.seed)
    if "kernels" in options.only:
        list_kernels(models, options.out / "kernels.json", options.seed)
    return 0


def _provenance() -> dict[str, object]:
    device = torch.cuda.get_device_properties(0)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device.name,
        "multiprocessors": device.multi_processor_count,
        "memory_bytes": device.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "method": "operators: calls in one CUDA graph, median of 15 replays; operands rotated through 256 MiB, at most "
        "64 sets (gemm, bmm: 400), cold = 1 if these exceed the L2; results freed at once; sdpa by the flash kernels. "
        "Steps: eager wall time, least of 10 medians of 10; one CUDA graph, median of 15 replays, median of 7 captures",
    }


if __name__ == "__main__":
    raise SystemExit(main())
