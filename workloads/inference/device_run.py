"""The measured half of lab 6 on a CUDA device: ``python -m workloads.inference device-run --out FOLDER``.

Checks every kernel, times products with packed weights, decode and prefill steps as captured graphs, and serves
requests with the engine; writes ``lab06_h200.json`` after each part.  Needs torch, triton and numpy alone.  A part that
fails says why in the file, and the others go on.
"""
# mypy: disable-error-code="no-untyped-call"

import gc
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from workloads.gpt.presets import preset
from workloads.inference import launch, tuning
from workloads.inference.device_checks import all_checks
from workloads.inference.device_models import DRY, FULL, Sizes, configured, random_model
from workloads.inference.device_steps import measure_model, serve
from workloads.inference.device_timing import Facts
from workloads.inference.launch import tiles_for
from workloads.measure.clock import say

FILE = "lab06_h200.json"
SECONDS = 330.0  # in all, unless it is told otherwise; parts that would begin later are left out
WORKERS = 12  # processes that compile ahead


class Results:
    """What was found so far, on the disk after every part."""

    def __init__(self, out: Path, seconds: float, sizes: Sizes) -> None:
        self.began, self.seconds = time.perf_counter(), seconds
        self.path = out / FILE
        self.sizes = sizes
        self.facts: Facts = {"provenance": _provenance(sizes), "skipped": []}
        out.mkdir(parents=True, exist_ok=True)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    def add(self, name: str, part: Callable[[], Any]) -> None:
        """Run *part* and keep its result under *name*, or why there is none."""
        if self.spent > self.seconds:
            self.facts["skipped"].append(name)
            return
        try:
            self.facts[name] = part()
        except Exception as error:  # compilers and drivers raise anything
            self.facts[name] = {"error": f"{type(error).__name__}: {str(error)[:600]}"}
        self.write(name)

    def write(self, name: str) -> None:
        """Write everything, and say what the part *name* found."""
        provenance = self.facts["provenance"]
        provenance["seconds"] = round(self.spent, 1)
        if not self.sizes.dry:
            provenance["state_after"][name] = _smi("clocks.sm,clocks.mem,power.draw,temperature.gpu")
            gc.collect()
            torch.cuda.empty_cache()
        self.save()
        say(f"{self.spent:6.1f} s  {name}: {json.dumps(self.facts[name])[:700]}")

    def save(self) -> None:
        """Write the file, one line a part."""
        lines = [f"{json.dumps(name)}: {json.dumps(part)}" for name, part in self.facts.items()]
        self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def measure(out: Path, seconds: float = SECONDS, dry: bool = False) -> int:
    """Run every part; the exit code is 1 if a check failed."""
    sizes = DRY if dry else FULL
    results = Results(out, seconds, sizes)
    torch.manual_seed(0)
    if not dry:
        results.add("compiled_ahead", compile_ahead)
    results.add("checks", lambda: all_checks(sizes))
    if not dry:
        results.add("linear", lambda: list(linear_table("llama-8b", sizes.rows, mm=True)))
        results.add("copy", copy_rate)
    for name in sizes.models:
        try:
            _model(results, name)
        except Exception as error:  # too large for this device, say
            results.facts[name] = {"error": f"{type(error).__name__}: {str(error)[:600]}"}
            results.write(name)
    bad = [name for name, found in results.facts["checks"].items() if not found["ok"]]
    say(f"{results.spent:6.1f} s  {results.path}: {len(bad)} of {len(results.facts['checks'])} checks failed {bad}")
    return 1 if bad else 0


def _model(results: Results, name: str) -> None:
    """Everything about one model; its weights are made once."""
    sizes = results.sizes
    if results.spent > results.seconds:
        results.facts["skipped"].append(name)
        return
    model = random_model(configured(name, sizes), sizes)
    if name != "llama-8b" and not sizes.dry:
        results.add(f"tuned {name}", lambda: len(list(linear_table(name, sizes.batches, mm=False))))
    for scheme in sizes.schemes:
        results.add(f"{name} {scheme}", partial(_parts, results, model, name, scheme))
    if name in sizes.models[:2]:
        for scheme in ("none", "w4"):
            results.add(f"served {name} {scheme}", partial(serve, model, scheme, sizes))


def _parts(results: Results, model: Any, name: str, scheme: str) -> Facts:
    """The parts of a model one after the other, each written when it is there."""
    found: Facts = {}
    key = f"{name} {scheme}"
    try:
        for part, value in measure_model(model, scheme, results.sizes):
            found[part] = value
            results.facts[key] = found
            results.save()
            say(f"{results.spent:6.1f} s    {key} {part}: {json.dumps(value)[:400]}")
    except Exception as error:  # what was measured before it stays
        found["error"] = f"{type(error).__name__}: {str(error)[:600]}"
    return found


def products(name: str) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of every matrix of a preset, as the engine has them."""
    c = preset(name)
    return {
        "qkv": (c.q_width + 2 * c.kv_width, c.width),
        "o": (c.width, c.q_width),
        "up": ((2 if c.gated else 1) * c.ffn, c.width),
        "down": (c.width, c.ffn),
        "head": (c.vocab, c.width),
    }


def linear_table(name: str, row_counts: tuple[int, ...], mm: bool) -> Iterator[Facts]:
    """Microseconds of every product of a model: torch's in bf16, and with packed weights by each tile."""
    for product, (outputs, inputs) in products(name).items():
        for rows in row_counts:
            if product == "head" and rows > 256:
                continue
            facts: Facts = {"product": product, "rows": rows, "outputs": outputs, "inputs": inputs}
            if mm:
                facts["bf16_us"] = round(_mm_us(rows, outputs, inputs), 2)
            for bits in (4, 8):
                timed = tuning.tune(bits, rows, outputs, inputs, torch.bfloat16)
                good = [each.us for each in timed if each.us is not None]
                facts[f"w{bits}_us"] = round(min(good), 2) if good else None
                facts[f"w{bits}_tiles"] = [
                    [*astuple(each.tile), each.us and round(each.us, 2), each.error] for each in timed
                ]
            yield facts


def _mm_us(rows: int, outputs: int, inputs: int) -> float:
    copies = max(2, min(32, -(-(2**28) // (2 * outputs * inputs))))
    weights = [torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
    return tuning.cold_us([partial(torch.nn.functional.linear, x, weight) for weight in weights])


def copy_rate() -> Facts:
    """Bytes a second of a large sum with one operand on the device, read and written both counted."""
    source = torch.randn(2**30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    us = tuning.cold_us([partial(torch.add, source, 1.0, out=target)])
    return {"bytes_per_second": 4 * source.numel() / us * 1e6}


def compile_ahead() -> Facts:
    """Let WORKERS processes launch every packed product once; Triton keeps what they compile on the disk."""
    command = [sys.executable, "-m", "workloads.inference", "device-run", "--compile"]
    began = time.perf_counter()
    workers = [
        subprocess.Popen([*command, f"{index}/{WORKERS}"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for index in range(WORKERS)
    ]
    faults = []
    for worker in workers:
        try:
            _, said = worker.communicate(timeout=max(1.0, 90 - (time.perf_counter() - began)))
        except subprocess.TimeoutExpired:
            worker.kill()
            faults.append("out of time")
        else:
            faults += said.decode(errors="replace").splitlines()[-3:] if worker.returncode else []
    return {"seconds": round(time.perf_counter() - began, 1), "faults": faults[:12]}


def compile_share(share: str) -> int:
    """Launch each packed product of one share, ``3/12``, once; one that does not compile leaves the others alone."""
    index, count = map(int, share.split("/"))
    failed = 0
    for number, job in enumerate(_jobs()):
        if number % count == index:
            try:
                job()
                torch.cuda.synchronize()
            except Exception as error:  # that is the purpose
                say(f"{type(error).__name__}: {str(error)[:300]}")
                failed += 1
    return 1 if failed else 0


def _jobs() -> Iterator[Callable[[], object]]:
    """Every tile with its groups split and in one piece."""
    for rows in (1, 16, 32, 64, 256, 512):
        for tile in tiles_for(rows):
            for bits in (4, 8):
                for waves in (0, 100):
                    packed = tuning.random_packed(bits, 256, 1024)[0]
                    x = torch.randn(rows, 1024, device="cuda", dtype=torch.bfloat16)
                    yield partial(launch.linear, x, *packed, bits, replace(tile, waves=waves))


def _provenance(sizes: Sizes) -> Facts:
    import triton  # noqa: PLC0415  only here is its version asked for

    facts: Facts = {
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "sha256": {path.name: _digest(path) for path in sorted(Path(__file__).parent.glob("*.py"))},
        "method": "steps: captured graphs, events around a replay that follows another, median of 5 to 30 (0.25 s); "
        "wall_us: launched from Python and waited for. Products: each call in one graph, operands in turn through "
        "256 MiB, median of 5. Random weights and caches; blocks of 16 positions lie anywhere. served: wall time of "
        "each step with scheduling, copies and sampling (us) and of the model alone (device_us)",
    }
    if not sizes.dry:
        device = torch.cuda.get_device_properties(0)
        facts |= {"device": device.name, "multiprocessors": device.multi_processor_count, "cuda": torch.version.cuda}
        facts |= {"memory_bytes": device.total_memory, "l2_bytes": device.L2_cache_size, "state_after": {}}
        facts |= {"driver": _smi("driver_version"), "clocks_max": _smi("clocks.max.sm,clocks.max.mem,power.limit")}
    return facts


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _smi(fields: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {type(error).__name__}"
