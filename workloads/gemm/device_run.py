"""``python -m workloads.gemm device-run --out FOLDER``: the measured half of the ladder, on a CUDA device.

Times every step at 4096^3 and 8192^3 in bf16 beside torch.mm, looks for the best configuration, tries tile sizes, reads
DRAM and L2 counters where Nsight Compute is there, checks odd sizes, and writes lab07_h200.json after every part.
Needs torch, Triton and numpy and nothing else.  ``--dry`` runs the same code at tiny sizes in Triton's interpreter.
"""

import argparse
import csv
import hashlib
import io
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from workloads.gemm.launch import TORCH_TYPES, multiply
from workloads.gemm.steps import DTYPES, LADDER, Config, Step

Facts = dict[str, Any]
Call = Callable[[], object]

SIZES, DRY_SIZES = (4096, 8192), (8, 16)
ODD_SIZES = ((17, 33, 65), (129, 257, 193), (200, 72, 520), (520, 1000, 1032))  # one compilation serves all
DRY_ODD_SIZES = ((1, 1, 1), (5, 7, 9), (18, 8, 24))
LIMITS = {"bf16": 1e-2, "fp16": 2e-3, "fp32": 1e-5}  # of ||out - reference|| / ||reference||
METRICS = (
    "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,lts__t_sectors_srcunit_tex.sum,gpu__time_duration.sum"
)
FEW_METRICS = "dram__bytes.sum,lts__t_bytes.sum"
_NCU_SECONDS = 60
_BATCH_SECONDS = 0.02  # of calls between two events: long against the clock's resolution
_SLOW_SECONDS = 0.2  # a call that takes longer is timed only twice

# What the search for the best configuration tries: kernel, and how it cuts.
SEARCH = (
    ("tiled", Config(128, 256, 64, warps=8, stages=3, group=8)),
    ("tiled", Config(128, 256, 64, warps=8, stages=4, group=8)),
    ("tiled", Config(256, 128, 64, warps=8, stages=3, group=8)),
    ("tiled", Config(128, 128, 64, warps=4, stages=4, group=8)),
    ("persistent", Config(128, 256, 64, warps=8, stages=4, group=8)),
    ("descriptor", Config(128, 256, 64, warps=8, stages=3, group=16)),
    ("descriptor", Config(128, 256, 64, warps=8, stages=4, group=8, split_store=True)),
    ("descriptor", Config(256, 128, 64, warps=8, stages=3, group=8)),
    ("descriptor", Config(128, 128, 64, warps=4, stages=4, group=8)),
    ("descriptor", Config(128, 128, 128, warps=8, stages=3, group=8)),
)
# Tiles for the curve of time against on-chip bytes, three slices deep.
TILES = (
    Config(16, 16, 64, warps=1, stages=3, group=8),
    Config(32, 32, 64, warps=2, stages=3, group=8),
    Config(64, 64, 64, warps=4, stages=3, group=8),
    Config(64, 128, 64, warps=4, stages=3, group=8),
    Config(128, 128, 64, warps=8, stages=3, group=8),
    Config(128, 256, 64, warps=8, stages=3, group=8),
)


@dataclass(frozen=True)
class Clock:
    """Times calls; *deadline* is when the run has to be over, in seconds of `time.perf_counter`."""

    dry: bool
    deadline: float

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda"

    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()

    def once(self, call: Call, repeats: int = 1) -> float:
        """Seconds of one of *repeats* calls one after the other, by events on the device."""
        if self.dry:
            began = time.perf_counter()
            for _ in range(repeats):
                call()
            return (time.perf_counter() - began) / repeats
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        milliseconds: float = start.elapsed_time(end)
        return milliseconds / 1000 / repeats

    def seconds(self, call: Call, batches: int = 9) -> Facts:
        """Median, least and largest seconds of one call, after a first one that compiles and a second that warms."""
        call()
        first = self.once(call)
        if first > _SLOW_SECONDS or self.dry:
            times = [first, self.once(call)]
        else:
            repeats = max(1, min(200, round(_BATCH_SECONDS / first)))
            times = [self.once(call, repeats) for _ in range(batches)]
        return {"seconds": statistics.median(times), "least": min(times), "most": max(times), "batches": len(times)}


@dataclass(frozen=True)
class Square:
    """Operands of one size, bf16, and the product that every step has to reach."""

    size: int
    a: torch.Tensor
    b: torch.Tensor
    wanted: torch.Tensor

    @classmethod
    def of(cls, size: int, device: str) -> "Square":
        """Random operands, normal so that the power they draw is that of real data."""
        torch.manual_seed(size)
        a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
        return cls(size, a, b, a.float() @ b.float())

    def timed(self, clock: Clock, each: Step, config: Config) -> Facts:
        """Run, check against the product in fp32, time."""
        out = torch.full_like(self.a, float("nan"))
        multiply(self.a, self.b, each, config, out)
        error = _error(out, self.wanted)
        facts = clock.seconds(lambda: multiply(self.a, self.b, each, config, out))
        rate = 2 * self.size**3 / facts["seconds"]
        correct = error < LIMITS["bf16"]
        return {"correct": correct, "error": error, **facts, "flop_per_second": rate, "config": asdict(config)}


def _error(out: torch.Tensor, wanted: torch.Tensor) -> float:
    """||out - wanted|| / ||wanted||; what was not written is NaN and stays so."""
    return float((out.to(wanted.dtype) - wanted).norm() / wanted.norm())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, check, write; returns 0, 1 if a check failed, 2 without a device."""
    parser = argparse.ArgumentParser(prog="python -m workloads.gemm device-run", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON file")
    parser.add_argument("--dry", action="store_true", help="tiny sizes in Triton's interpreter, without a device")
    parser.add_argument("--seconds", type=float, default=150, help="after which nothing new is begun (150)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only parts named so; FOLDER has the others")
    parser.add_argument("--launch", type=int, metavar="SIZE", help="only launch every step once, for a profiler")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        say("device-run needs a CUDA device; this machine has none.  --dry tries the same code without one")
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is fp32
    clock = Clock(options.dry, time.perf_counter() + options.seconds)
    if options.launch:
        launch_all(options.launch, clock)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        facts = run_parts(options.out, clock, options.only)
    except ValueError as error:
        say(str(error))
        return 2
    failed = _failures(facts)
    say("all checks passed" if not failed else "FAILED: " + "; ".join(failed))
    return 1 if failed else 0


def run_parts(folder: Path, clock: Clock, only: str = "") -> Facts:
    """Run every part, each guarded, the file written after each; return what is in the file.

    With *only*, parts with it in their name are run and the others stay as the file has them; ValueError unless it has
    them, from the same kernels.
    """
    target = folder / ("lab07_dry.json" if clock.dry else "lab07_h200.json")
    sizes = DRY_SIZES if clock.dry else SIZES
    facts: Facts = {"provenance": guarded(provenance, clock)}
    parts: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        *((f"ladder {size}", ladder, (size, clock)) for size in sizes),
        *((f"search {size}", search, (size, clock)) for size in sizes),
        ("tiles", tiles, (sizes[0], clock)),
        ("odd sizes bf16", odd_sizes, ("bf16", clock)),
        ("counters", counters, (folder, sizes, clock)),
        *((f"odd sizes {dtype}", odd_sizes, (dtype, clock)) for dtype in DTYPES if dtype != "bf16"),
    ]
    if only:
        facts = _continued(target, facts["provenance"]) | {f"provenance of {only}": facts["provenance"]}
    for name, part, given in parts:
        if only not in name:
            continue
        began = time.perf_counter()
        facts[name] = guarded(part, *given) if clock.left() > 0 else {"skipped": "out of time"}
        target.write_text(json.dumps(facts, indent=1) + "\n")
        say(f"== {name}: {time.perf_counter() - began:.1f} s, {clock.left():.0f} s left")
    return facts


def _continued(target: Path, now: Facts) -> Facts:
    """What the file of an earlier run holds; ValueError if there is none, or if the kernels were others."""
    try:
        earlier: Facts = json.loads(target.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"--only continues {target}: {error}") from None
    if earlier["provenance"]["kernels_sha256"] != now["kernels_sha256"]:
        raise ValueError(f"{target} was measured with other kernels: run all parts")
    return earlier


def guarded(part: Callable[..., Any], *arguments: Any) -> Any:
    """What *part* returns, or what went wrong in it: one failure must not lose the rest."""
    try:
        return part(*arguments)
    except Exception as error:  # compilers and drivers raise anything
        text = f"{type(error).__name__}: {error}"
        say(f"   error: {text[:300]}")
        return {"error": text[:2000]}


def provenance(clock: Clock) -> Facts:
    """Date, device, versions, clocks, and the hash of the kernels that were run."""
    import triton  # noqa: PLC0415  only Linux has it

    here = Path(__file__).parent
    source = b"".join((here / name).read_bytes() for name in ("kernels.py", "launch.py", "steps.py"))
    facts: Facts = {
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "kernels_sha256": hashlib.sha256(source).hexdigest(),
        "hashed": "kernels.py, launch.py, steps.py of workloads/gemm, one after the other",
        "method": "median of 9 batches of at least 20 ms, CUDA events, same operands again (4096: 96 MiB, more than "
        "the L2); calls above 0.2 s twice; normal random operands; best and torch.mm: 15 rounds in turn",
    }
    if not clock.dry:
        device = torch.cuda.get_device_properties(0)
        facts |= {"device": device.name, "multiprocessors": device.multi_processor_count, "cuda": torch.version.cuda}
        facts |= {"l2_bytes": device.L2_cache_size, "memory_bytes": device.total_memory}
        facts["driver"] = _smi("driver_version")
        facts["clocks"] = _smi("clocks.sm,clocks.mem,clocks.max.sm,power.limit")
    return facts


def ladder(size: int, clock: Clock) -> Facts:
    """Every step and torch.mm at *size*; the slowest last, so that running out of time loses least."""
    square = Square.of(size, clock.device)
    facts: Facts = {"torch.mm": clock.seconds(lambda: torch.mm(square.a, square.b))}
    facts["torch.mm"]["flop_per_second"] = 2 * size**3 / facts["torch.mm"]["seconds"]
    say(f"   {size} torch.mm {_shown(facts['torch.mm'])}")
    for each in reversed(LADDER):
        config = _dry(each.config) if clock.dry else each.config
        facts[each.name] = guarded(square.timed, clock, each, config)
        say(f"   {size} {each.name} {_shown(facts[each.name])}")
    return facts


def search(size: int, clock: Clock) -> Facts:
    """Every configuration of the search at *size*, then the best and torch.mm in turn."""
    square = Square.of(size, clock.device)
    tried: list[Facts] = []
    for kernel, config in SEARCH:
        if clock.left() < 0:
            break
        each = Step(kernel, kernel, config, "")
        cut = _dry(config) if clock.dry else config
        found = guarded(square.timed, clock, each, cut)
        tried.append({"kernel": kernel, **found, "config": asdict(cut)})
        say(f"   {size} {kernel} {_words(config)} {_shown(found)}")
    good = [each for each in tried if each.get("correct")]
    best = min(good, key=lambda each: each["seconds"])
    return {"best": best, "duel": duel(square, best, clock), "tried": tried}


def duel(square: Square, best: Facts, clock: Clock) -> Facts:
    """The best configuration and torch.mm in turn, so that both meet the same clocks; and the clocks meanwhile."""
    config = Config(**best["config"])
    each = Step(best["kernel"], best["kernel"], config, "")
    out = torch.empty_like(square.a)
    ours, theirs = (
        (lambda: multiply(square.a, square.b, each, config, out)),
        (lambda: torch.mm(square.a, square.b, out=out)),
    )
    rounds, repeats = (2, 1) if clock.dry else (15, max(5, round(_BATCH_SECONDS / best["seconds"])))
    pairs = [(clock.once(ours, repeats), clock.once(theirs, repeats)) for _ in range(rounds)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    facts: Facts = {"triton_seconds": mine, "torch_seconds": other, "share_of_torch": other / mine}
    if not clock.dry:
        for name, call in (("triton", ours), ("torch", theirs)):
            facts[f"state_{name}"] = _busy_state(call)
    say(f"   {square.size} best {best['kernel']} {_words(config)}: {other / mine:.1%} of torch.mm")
    return facts


def _busy_state(call: Call) -> str:
    """Clock, power and temperature while the device does nothing but *call*."""
    for _ in range(2):  # the power shown is an average: the first answer is thrown away
        query = subprocess.Popen(
            _smi_command("clocks.sm,power.draw,temperature.gpu"), stdout=subprocess.PIPE, text=True
        )
        while query.poll() is None:
            for _ in range(20):
                call()
            torch.cuda.synchronize()
        answer = query.communicate()[0].strip()
    return answer


def tiles(size: int, clock: Clock) -> list[Facts]:
    """Tiles from small to large at *size*: the measured points of time against on-chip bytes."""
    square = Square.of(size, clock.device)
    found = []
    for config in TILES:
        cut = _dry(config) if clock.dry else config
        each = Step("tiled", "tiled", cut, "")
        found.append({"config": asdict(cut), **guarded(square.timed, clock, each, cut)})
        say(f"   {size} {_words(config)} {_shown(found[-1])}")
    return found


def odd_sizes(dtype: str, clock: Clock) -> Facts:
    """Every step against torch in fp64 where tiles do not fit the sizes; a step says which sizes it refuses."""
    facts: Facts = {}
    same = () if dtype == "bf16" else ("registers", "pipelined")  # kernels of 'grouped', which take long to compile
    for each in (each for each in LADDER if each.name not in same):
        for sizes in DRY_ODD_SIZES if clock.dry else ODD_SIZES:
            if clock.left() < 0:
                facts["skipped"] = f"out of time at {each.name} {sizes}"
                return facts
            facts[f"{each.name} {sizes}"] = guarded(odd, each, sizes, dtype, clock)
    wrong = [name for name, found in facts.items() if not found.get("correct", "refused" in found)]
    say(f"   {dtype}: {len(facts) - len(wrong)} of {len(facts)} right{'; wrong: ' + ', '.join(wrong) if wrong else ''}")
    return facts


def odd(each: Step, sizes: tuple[int, int, int], dtype: str, clock: Clock) -> Facts:
    """Error of one step at one size; memory beyond the result is watched for stray writes."""
    m, n, k = sizes
    torch.manual_seed(m + n + k)
    a = torch.randn(m, k, device=clock.device).to(TORCH_TYPES[dtype])
    b = torch.randn(k, n, device=clock.device).to(TORCH_TYPES[dtype])
    framed = torch.full((m + 2, n), float("nan"), device=clock.device, dtype=a.dtype)
    aligned = each.kernel != "descriptor"  # whose rows have to begin at multiples of 16 bytes; a frame may not
    out = framed[1:-1] if aligned else torch.full((m, n), float("nan"), device=clock.device, dtype=a.dtype)
    try:
        multiply(a, b, each, _dry(each.config) if clock.dry else None, out)
    except ValueError as refusal:
        return {"refused": str(refusal)}
    error = _error(out.double(), a.double() @ b.double())
    stray = aligned and not bool(framed[0].isnan().all() and framed[-1].isnan().all())
    return {"correct": error < LIMITS[dtype] and not stray, "error": error, "stray_writes": stray}


def counters(folder: Path, sizes: Sequence[int], clock: Clock) -> Facts:
    """DRAM and L2 bytes of every step from Nsight Compute, in a process of its own for each size."""
    tool = _ncu()
    if tool is None:
        return {"skipped": "ncu is not on this machine"}
    facts: Facts = {"tool": tool}
    began = time.perf_counter()
    for size in sizes:
        for metrics in (METRICS, FEW_METRICS):
            left = min(_NCU_SECONDS - (time.perf_counter() - began), clock.left())
            if left < 10:
                facts[str(size)] = {"skipped": "out of time"}
                break
            facts[str(size)] = guarded(profile, tool, metrics, size, left, folder)
            if "error" not in facts[str(size)]:
                break
    return facts


def profile(tool: str, metrics: str, size: int, limit: float, folder: Path) -> Facts:
    """Run ``--launch SIZE`` under *tool*; return the metrics of each step by name, in base units."""
    log = folder / f"ncu_{size}.csv"
    command = [
        tool, "--csv", "--print-units", "base", "--clock-control", "none", "--target-processes", "all",
        "--kernel-name", "regex:^gemm_", "--metrics", metrics, "--log-file", str(log),
        sys.executable, "-m", "workloads.gemm.device_run", "--out", str(folder), "--launch", str(size),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
        ended = f"exit {done.returncode}: {(done.stdout + done.stderr)[-500:]}"
    except subprocess.TimeoutExpired:
        ended = f"stopped after {limit:.0f} s"
    text = log.read_text() if log.exists() else ""
    rows = parse_ncu(text)
    if not rows:
        raise RuntimeError(f"no counters from ncu, {ended}; log: {text[-500:]}")
    names = [each.name for each in launch_order(size)]
    say(f"   {size}: counters of {len(rows)} launches")
    return dict(zip(names, rows, strict=False))


def parse_ncu(text: str) -> list[dict[str, float]]:
    """Return the metrics of each launch, in the order of launches, from the CSV that ncu writes among its remarks.

    >>> parse_ncu('==PROF== x\\n"ID","Metric Name","Metric Value"\\n"0","dram__bytes.sum","1,024"\\n"1","a","2"\\n')
    [{'dram__bytes.sum': 1024.0}, {'a': 2.0}]
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        rows.setdefault(row["ID"], {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return [rows[key] for key in sorted(rows, key=int)]


def launch_order(size: int) -> list[Step]:
    """Steps in the order in which a profiler sees them; those of seconds only where they take less than one."""
    return [each for each in reversed(LADDER) if size <= SIZES[0] or each.kernel != "elements"]


def launch_all(size: int, clock: Clock) -> None:
    """Launch every step once, for a profiler that watches."""
    square = Square.of(size, clock.device)
    out = torch.empty_like(square.a)
    for each in launch_order(size):
        multiply(square.a, square.b, each, _dry(each.config) if clock.dry else None, out)
    if not clock.dry:
        torch.cuda.synchronize()


def _ncu() -> str | None:
    places = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu")) + sorted(Path("/usr/local").glob("cuda*/bin/ncu"))
    return shutil.which("ncu") or next((str(path) for path in reversed(places)), None)


def _smi(query: str) -> str:
    return subprocess.run(_smi_command(query), capture_output=True, text=True, check=False).stdout.strip()


def _smi_command(query: str) -> list[str]:
    return ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]


def _dry(config: Config) -> Config:
    """The same with the smallest tiles there are: an interpreter works through elements one by one."""
    cells = min(config.block_m, 16), min(config.block_n, 16), min(config.block_k, 16)
    return replace(config, block_m=cells[0], block_n=cells[1], block_k=cells[2], split_store=False)


def _words(config: Config) -> str:
    return (
        f"{config.block_m}x{config.block_n}x{config.block_k} {config.warps} warps {config.stages} stages "
        f"group {config.group}{' split' if config.split_store else ''}"
    )


def _shown(facts: Facts) -> str:
    if "error" in facts and "seconds" not in facts:
        return "error"
    note = "" if facts.get("correct", True) else f" WRONG, error {facts['error']:.1e}"
    return f"{facts['seconds'] * 1e3:.3f} ms {facts['flop_per_second'] / 1e12:.1f} TFLOP/s{note}"


def _failures(facts: Facts) -> list[str]:
    """Names of all parts that stopped, or have a wrong product or a step that stopped in them."""
    return sorted(name for name, part in facts.items() if any(map(_bad, _inside(part))))


def _inside(part: Any) -> list[Any]:
    return part if isinstance(part, list) else [part, *part.values()]


def _bad(found: Any) -> bool:
    return isinstance(found, dict) and (found.get("correct") is False or isinstance(found.get("error"), str))


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
