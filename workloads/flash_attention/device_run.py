"""The measured half of lab 8, on a CUDA device: ``python -m workloads.flash_attention device-run --out FOLDER``.

Checks the kernels against fp64, searches their block sizes, times them beside PyTorch's, reads the counters of the
memory where Nsight Compute is there, and writes ``lab08_h200.json`` after each part.  Needs torch, triton and nothing
else.  A part that fails writes what went wrong, and the others go on.
"""
# mypy: disable-error-code="no-untyped-call"

import csv
import gc
import hashlib
import io
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from workloads.flash_attention import launch, reference
from workloads.flash_attention.launch import Blocks
from workloads.flash_attention.operator import attention
from workloads.measure.clock import copies_needed, kernel_us, say

FILE = "lab08_h200.json"
SECONDS = 140.0  # in all, unless it is told otherwise; parts stop early to leave their share to those that follow
NCU_SECONDS = 50.0
WORKERS = 14  # processes that compile ahead
TOLERANCE = {"fp16": 2e-3, "bf16": 1.6e-2}  # times the largest value of the reference, at least 1
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
HEAD, HEADS, TOKENS = 128, 16, 16384  # of the timed shapes; the batch is TOKENS over the length
LENGTHS = (1024, 2048, 4096, 8192, 16384)

FORWARD = (
    Blocks(128, 64, 8, 3), Blocks(128, 128, 8, 2), Blocks(128, 64, 8, 2), Blocks(128, 64, 8, 4), Blocks(128, 128, 8, 3),
    Blocks(128, 64, 4, 3), Blocks(64, 64, 4, 3), Blocks(128, 32, 8, 4),
)  # fmt: skip
QUERY = (Blocks(128, 64, 8, 2), Blocks(128, 32, 8, 3), Blocks(64, 64, 4, 2), Blocks(128, 64, 8, 3))
KEY = (
    Blocks(32, 128, 8, 2), Blocks(64, 128, 8, 2), Blocks(32, 128, 8, 3), Blocks(64, 64, 8, 2), Blocks(32, 64, 4, 2)
)  # fmt: skip
# batch, query heads, key heads, positions; the last three fill the device in one sequence or in many
DECODE = ((1, 32, 8, 4096), (1, 32, 8, 32768), (1, 32, 8, 131072), (16, 32, 8, 8192), (64, 32, 8, 4096))
COUNTED = ("forward full 8192 8 128", "forward causal 8192 8 128", "forward full 4096 12 64",
           "forward causal 16384 8 128", "backward causal 8192 8 128", "decode 32768 8 128")  # fmt: skip
RESULTS = ("out", "dq", "dk", "dv")
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One shape that is checked; *strided* keeps [batch, length, heads, head] in memory, as models do."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head: int
    causal: bool
    dtype: str
    strided: bool = False


CASES = (
    Case(2, 8, 8, 1024, 1024, 128, True, "bf16"),
    Case(1, 8, 2, 1000, 1000, 128, True, "bf16", strided=True),
    Case(2, 8, 2, 1024, 515, 128, False, "bf16"),
    Case(2, 8, 8, 1024, 1024, 128, True, "fp16"),
    Case(2, 4, 4, 777, 1333, 64, False, "bf16"),
    Case(2, 4, 2, 777, 1333, 64, True, "fp16", strided=True),
    Case(1, 4, 4, 513, 513, 96, True, "bf16"),
    Case(1, 6, 2, 257, 300, 96, False, "fp16"),
    Case(1, 2, 1, 17, 17, 64, True, "fp16"),
    Case(2, 4, 4, 1, 1, 64, True, "fp16"),
    Case(4, 32, 8, 1, 4097, 128, False, "bf16"),
    Case(2, 16, 2, 4, 1000, 64, True, "fp16"),
    Case(1, 8, 1, 16, 129, 96, True, "bf16"),
    Case(1, 64, 1, 3, 70, 64, True, "fp16"),
)


class Clock:
    """Seconds of the whole run that are left."""

    def __init__(self, total: float) -> None:
        self.began, self.total = time.perf_counter(), total

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        return self.total - self.spent

    def less_than(self, share: float) -> bool:
        """Whether less than *share* of all the time is left."""
        return self.left < share * self.total


def measure(out: Path, seconds: float = SECONDS) -> int:
    """Run every part, write the file after each, and return the exit code: 1 if a check of correctness failed."""
    clock = Clock(seconds)
    facts: Facts = {"provenance": _provenance()}
    parts: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("compiled_ahead", lambda: compile_ahead(clock)),
        ("correctness", lambda: [_guarded(partial(checked, case)) for case in CASES]),
        ("autograd", through_autograd),
        ("forward_search", lambda: search_forward(clock)),
        ("forward", lambda: list(time_forward(facts, clock))),
        ("counters", lambda: counters(clock)),
        ("backward_search", lambda: search_backward(clock)),
        ("backward", lambda: list(time_backward(facts, clock))),
        ("decode", lambda: list(time_decode(clock))),
    )
    for name, part in parts:
        facts[name] = _guarded(part)
        say(f"{clock.spent:6.1f} s  {name}: {json.dumps(facts[name])[:1500]}")
        facts["provenance"]["clocks_after"][name] = _smi("clocks.sm,clocks.mem,power.draw,temperature.gpu")
        facts["provenance"]["seconds"] = round(clock.spent, 1)
        out.mkdir(parents=True, exist_ok=True)
        (out / FILE).write_text(json.dumps(facts, indent=1) + "\n")
    bad = [case for case in [*facts["correctness"], facts["autograd"]] if not case.get("ok")]
    say(f"{clock.spent:6.1f} s  {out / FILE}: {len(bad)} of {len(CASES) + 1} checks failed")
    return 1 if bad else 0


def _guarded(part: Callable[[], Any]) -> Any:
    """Run *part*; what went wrong becomes its result, so that the rest is still measured."""
    try:
        found = part()
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
    gc.collect()
    torch.cuda.empty_cache()
    return found


def _provenance() -> Facts:
    import triton  # noqa: PLC0415  only here is its version asked for

    device = torch.cuda.get_device_properties(0)
    sources = sorted(Path(__file__).parent.glob("kernels*.py"))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device.name,
        "multiprocessors": device.multi_processor_count,
        "memory_bytes": device.total_memory,
        "l2_bytes": device.L2_cache_size,
        "driver": _smi("driver_version"),
        "clocks_max": _smi("clocks.max.sm,clocks.max.mem,power.limit"),
        "clocks_after": {},
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "kernel_sha256": {each.name: hashlib.sha256(each.read_bytes()).hexdigest()[:16] for each in sources},
        "method": "forward, decode: calls in one CUDA graph, median of 15 replays, three rounds in turn with "
        "PyTorch's, median; decode rotates its operands through 256 MiB. backward: events around eager calls, median. "
        "TFLOP/s: multiply-add = 2, causal counts the pairs that the mask leaves, backward five products. Errors: "
        "largest difference from fp64, of ours and of PyTorch's default in the same type",
    }


def _smi(fields: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {type(error).__name__}"


# --- kernels are compiled by many processes before they are used: each takes seconds, and a GPU waits ---


def compile_ahead(clock: Clock) -> Facts:
    """Start WORKERS processes that launch every kernel once; Triton keeps what they compile on the disk."""
    command = [sys.executable, "-m", "workloads.flash_attention", "device-run", "--compile"]
    with_share = [[*command, f"{index}/{WORKERS}"] for index in range(WORKERS)]
    workers = [subprocess.Popen(each, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for each in with_share]
    faults = []
    for worker in workers:
        try:
            _, said = worker.communicate(timeout=max(1.0, 60 - clock.spent))
        except subprocess.TimeoutExpired:
            worker.kill()
            faults.append("out of time")
        else:
            faults += said.decode(errors="replace").splitlines()[-3:] if worker.returncode else []
    return {"seconds": round(clock.spent, 1), "faults": faults[:12]}


def compile_share(share: str) -> int:
    """Launch each kernel of one share, ``3/14``, once; one that does not compile leaves the others alone."""
    index, count = map(int, share.split("/"))
    failed = 0
    for number, job in enumerate(_jobs()):
        if number % count == index:
            try:
                job()
                torch.cuda.synchronize()
            except Exception as error:
                say(f"{type(error).__name__}: {str(error)[:300]}")
                failed += 1
    return 1 if failed else 0


def _jobs() -> Iterator[Callable[[], object]]:
    """Launches that compile every kernel used below once; the longest to compile come first."""
    q, k, v = (torch.randn(1, 1, 256, HEAD, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out, logsum = torch.zeros_like(q), torch.zeros(1, 1, 256, device="cuda")
    backward = partial(launch.backward, q, q, k, v, out, logsum, True, 0.1)
    for blocks in KEY:
        yield partial(backward, key_sizes=blocks)
    kinds = {(case.head, case.causal, case.dtype): case for case in CASES if case.q_len > launch.DECODE_QUERIES}
    for case in kinds.values():
        yield partial(_backward_once, case)
    for blocks in FORWARD:
        yield partial(launch.forward, q, k, v, True, 0.1, blocks)
        yield partial(launch.forward, q, k, v, False, 0.1, blocks)
    for blocks in QUERY:
        yield partial(backward, query_sizes=blocks)
    for case in CASES:
        yield partial(_forward_once, case)


def _forward_once(case: Case) -> None:
    q, k, v, _ = _tensors(case)
    launch.forward(q, k, v, case.causal, 0.1)


def _backward_once(case: Case) -> None:
    q, k, v, grad = _tensors(case)
    launch.backward(grad, q, k, v, q, torch.zeros(q.shape[:3], device="cuda"), case.causal, 0.1)


# --- correctness ---


def _tensors(case: Case) -> list[Tensor]:
    """Query, key, value and a gradient of the output, normally distributed."""
    generator = torch.Generator("cuda").manual_seed(case.q_len * 1000 + case.kv_len)
    found = []
    sizes = ((case.heads, case.q_len), (case.kv_heads, case.kv_len), (case.kv_heads, case.kv_len))
    for heads, length in (*sizes, sizes[0]):
        shape = (case.batch, length, heads, case.head) if case.strided else (case.batch, heads, length, case.head)
        made = torch.randn(shape, generator=generator, device="cuda").to(TYPES[case.dtype])
        found.append(made.transpose(1, 2) if case.strided else made)
    return found


def checked(case: Case) -> Facts:
    """Compare forward and backward with fp64; PyTorch's own error stands beside ours."""
    q, k, v, grad = _tensors(case)
    scale = case.head**-0.5
    out, logsum = launch.forward(q, k, v, case.causal, scale)
    exact, exact_logsum = reference.plain(q, k, v, case.causal, scale)
    grads = launch.backward(grad, q, k, v, out, logsum, case.causal, scale)
    exact_grads = reference.plain_backward(grad, q, k, v, case.causal, scale)
    ours = dict(zip(RESULTS, (out, *grads), strict=True))
    wanted = dict(zip(RESULTS, (exact, *exact_grads), strict=True))
    again = launch.backward(grad, q, k, v, out, logsum, case.causal, scale)
    found: Facts = asdict(case)
    found["error"] = {name: _error(ours[name], wanted[name]) for name in ours} | {
        "logsum": _error(logsum, exact_logsum)
    }
    found["torch_error"] = _guarded(lambda: _torch_errors(case, q, k, v, grad, wanted))
    found["largest"] = {name: float(each.abs().max()) for name, each in wanted.items()}
    limit = TOLERANCE[case.dtype]
    found["repeats"] = all(torch.equal(one, other) for one, other in zip(grads, again, strict=True))
    found["ok"] = found["repeats"] and found["error"]["logsum"] < 1e-4 and all(
        found["error"][name] <= limit * max(1.0, found["largest"][name]) for name in ours
    )  # fmt: skip
    return found


def _error(got: Tensor, wanted: Tensor) -> float:
    """Largest difference; infinity for what is no number."""
    return float((got.detach().double() - wanted).abs().nan_to_num(nan=float("inf")).max())


def _torch_errors(case: Case, q: Tensor, k: Tensor, v: Tensor, grad: Tensor, wanted: dict[str, Tensor]) -> Facts:
    leaves = [each.detach().clone().requires_grad_() for each in (q, k, v)]
    mask = None
    if case.causal:
        shift = case.kv_len - case.q_len
        mask = torch.ones(case.q_len, case.kv_len, dtype=torch.bool, device="cuda").tril(shift)
    out = F.scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], attn_mask=mask, enable_gqa=True)
    grads = torch.autograd.grad(out, leaves, grad)
    return {name: _error(each, wanted[name]) for name, each in zip(RESULTS, (out, *grads), strict=True)}


def through_autograd() -> Facts:
    """The registered operator: the loss of a small program, differentiated by torch, against fp64."""
    case = CASES[1]
    q, k, v, grad = _tensors(case)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    out = attention(leaves[0], leaves[1], leaves[2], causal=case.causal)
    out.backward(grad)
    exact = reference.plain_backward(grad, q, k, v, case.causal, case.head**-0.5)
    errors = [_error(leaf.grad, each) for leaf, each in zip(leaves, exact, strict=True) if leaf.grad is not None]
    limit = TOLERANCE[case.dtype] * max(float(each.abs().max()) for each in exact)
    return {"error": errors, "ok": len(errors) == 3 and max(errors) <= limit}


# --- speed ---


def _random(batch: int, heads: int, length: int, head: int = HEAD) -> Tensor:
    return torch.randn(batch, heads, length, head, device="cuda", dtype=torch.bfloat16)


def _flop(batch: int, heads: int, length: int, causal: bool, products: int) -> float:
    pairs = length * (length + 1) // 2 if causal else length * length
    return 2.0 * products * HEAD * batch * heads * pairs


def search_forward(clock: Clock) -> Facts:
    """TFLOP/s of each size of blocks at 4096 tokens, and the best with and without a mask."""
    found: Facts = {"tried": []}
    q, k, v = (_random(TOKENS // 4096, HEADS, 4096) for _ in range(3))
    for causal in (True, False):
        flop = _flop(TOKENS // 4096, HEADS, 4096, causal, 2)
        best = 0.0
        for blocks in FORWARD:
            row: Facts = {"causal": causal, **asdict(blocks)}
            row |= _guarded(lambda: {"us": kernel_us([lambda: launch.forward(q, k, v, causal, 0.09, blocks)])})  # noqa: B023
            found["tried"].append(row)
            if "us" in row:
                row["tflops"] = flop / row["us"] / 1e6
                if row["tflops"] > best:
                    best = row["tflops"]
                    found["causal" if causal else "full"] = asdict(blocks)
            if clock.less_than(0.5):
                break
    return found


def _best(facts: Facts, part: str, name: str, otherwise: Blocks) -> Blocks:
    found = facts.get(part, {}).get(name)
    return Blocks(**found) if found else otherwise


def time_forward(facts: Facts, clock: Clock) -> Iterator[Facts]:
    """Ours, PyTorch's flash kernel and PyTorch's default in turn, with and without a mask, shortest lengths last."""
    for length in sorted(LENGTHS, reverse=True):
        for causal in (True, False):
            if clock.less_than(0.35):
                return
            batch = TOKENS // length
            blocks = _best(facts, "forward_search", "causal" if causal else "full", launch.forward_blocks(HEAD))
            q, k, v = (_random(batch, HEADS, length) for _ in range(3))
            calls: dict[str, Callable[[], object]] = {
                "triton": lambda: launch.forward(q, k, v, causal, HEAD**-0.5, blocks),  # noqa: B023
                "flash": lambda: _flash(q, k, v, causal),  # noqa: B023
                "default": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),  # noqa: B023
            }
            row: Facts = {"length": length, "batch": batch, "heads": HEADS, "head": HEAD, "causal": causal}
            yield row | {"blocks": asdict(blocks)} | _in_turn(calls, _flop(batch, HEADS, length, causal, 2))


def _flash(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def _in_turn(calls: dict[str, Callable[[], object]], flop: float) -> Facts:
    """Median microseconds of three rounds for each of *calls*, and what they mean."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    faults = {}
    for _ in range(3):
        for name, call in calls.items():
            found = _guarded(lambda: {"us": kernel_us([call])})  # noqa: B023
            if "us" in found:
                times[name].append(found["us"])
            else:
                faults[name] = found["error"]
    row: Facts = {f"{name}_us": statistics.median(each) for name, each in times.items() if each}
    row |= {f"{name}_tflops": flop / row[f"{name}_us"] / 1e6 for name in calls if f"{name}_us" in row}
    if "triton_us" in row and "flash_us" in row:
        row["of_flash"] = row["flash_us"] / row["triton_us"]
    return row | ({"faults": faults} if faults else {})


def search_backward(clock: Clock) -> Facts:
    """Microseconds of the whole backward pass for each size of blocks of its two kernels, 4096 tokens, causal."""
    q, k, v, grad = (_random(TOKENS // 4096, HEADS, 4096) for _ in range(4))
    out, logsum = launch.forward(q, k, v, True, HEAD**-0.5)
    found: Facts = {"tried": []}
    for name, choices in (("query", QUERY), ("key", KEY)):
        best = float("inf")
        for blocks in choices:
            sizes = {f"{name}_sizes": blocks}
            call = lambda: launch.backward(grad, q, k, v, out, logsum, True, HEAD**-0.5, **sizes)  # noqa: B023, E731
            row = {"kernel": name, **asdict(blocks)} | _guarded(lambda: {"us": _eager_us(call, 4)})  # noqa: B023
            found["tried"].append(row)
            if row.get("us", best) < best:
                best, found[name] = row["us"], asdict(blocks)
            if clock.less_than(0.15):
                return found
    return found


def _eager_us(call: Callable[[], object], repeats: int = 8) -> float:
    """Median microseconds between events around eager calls, in which the GPU is busy and the host is ahead."""
    call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize()
    for mark in marks[:-1]:
        mark.record()
        call()
    marks[-1].record()
    torch.cuda.synchronize()
    return float(statistics.median(1000 * one.elapsed_time(other) for one, other in pairwise(marks)))


def time_backward(facts: Facts, clock: Clock) -> Iterator[Facts]:
    """Ours beside PyTorch's flash kernel and its default, causal."""
    query = _best(facts, "backward_search", "query", launch.query_blocks(HEAD))
    keys = _best(facts, "backward_search", "key", launch.key_blocks(HEAD))
    for length in (4096, 16384, 2048):
        if clock.less_than(0.1):
            return
        batch, scale = TOKENS // length, HEAD**-0.5
        q, k, v, grad = (_random(batch, HEADS, length).requires_grad_() for _ in range(4))
        out, logsum = launch.forward(q.detach(), k.detach(), v.detach(), True, scale)
        read = [each.detach() for each in (grad, q, k, v)]
        flash = _flash(q, k, v, True)
        default = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        row: Facts = {"length": length, "batch": batch, "heads": HEADS, "head": HEAD, "causal": True}
        row |= {"query_blocks": asdict(query), "key_blocks": asdict(keys)}
        calls: dict[str, Callable[[], object]] = {
            "triton": lambda: launch.backward(
                read[0], read[1], read[2], read[3], out, logsum, True, scale, query, keys  # noqa: B023
            ),
            "flash": lambda: torch.autograd.grad(flash, (q, k, v), read[0], retain_graph=True),  # noqa: B023
            "default": lambda: torch.autograd.grad(default, (q, k, v), read[0], retain_graph=True),  # noqa: B023
        }  # fmt: skip
        for name, call in calls.items():
            found = _guarded(lambda: {"us": _eager_us(call)})  # noqa: B023
            row[f"{name}_us"] = found.get("us", found.get("error"))
        flop = _flop(batch, HEADS, length, True, 5)
        row |= {
            f"{name}_tflops": flop / row[f"{name}_us"] / 1e6 for name in calls if row[f"{name}_us"].__class__ is float
        }
        yield row


def time_decode(clock: Clock) -> Iterator[Facts]:
    """One query a sequence: microseconds and the rate at which keys and values arrive, beside PyTorch's flash."""
    for batch, heads, kv_heads, length in DECODE:
        if clock.less_than(0.03):
            return
        nbytes = 2 * batch * kv_heads * length * HEAD * 2
        sets = [
            [_random(batch, heads, 1), *(_random(batch, kv_heads, length) for _ in range(2))]
            for _ in range(copies_needed(nbytes, 32))
        ]
        row: Facts = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head": HEAD, "length": length}
        for name, function in (("triton", _decode), ("flash", _flash_decode), ("one_part", _decode_whole)):
            calls = [lambda each=each: function(*each) for each in sets]  # noqa: B023
            found = _guarded(lambda: {"us": kernel_us(calls)})  # noqa: B023
            row[f"{name}_us"] = found.get("us", found.get("error"))
            if "us" in found:
                row[f"{name}_gb_per_s"] = nbytes / found["us"] / 1e3
        yield row


def _decode(q: Tensor, k: Tensor, v: Tensor) -> object:
    return launch.decode(q, k, v, False, HEAD**-0.5)


def _decode_whole(q: Tensor, k: Tensor, v: Tensor) -> object:
    return launch.decode(q, k, v, False, HEAD**-0.5, parts=1)


def _flash_decode(q: Tensor, k: Tensor, v: Tensor) -> object:
    return _flash(q, k, v, False)


# --- counters of the memory ---

_METRICS = {"dram__bytes_read.sum": "dram_read_bytes", "dram__bytes_write.sum": "dram_write_bytes",
            "gpu__time_duration.sum": "ns"}  # fmt: skip
_KERNELS = "regex:^(forward|decode|combine|row_sums|query_gradient|key_gradient)$"


def counters(clock: Clock) -> Any:
    """Bytes of DRAM of each kernel by Nsight Compute, caches flushed before each; or why there are none."""
    program = shutil.which("ncu")
    if program is None:
        return {"error": "ncu is not on PATH"}
    command = [
        program, "--csv", "--print-units", "base", "--metrics", ",".join(_METRICS), "-k", _KERNELS,
        sys.executable, "-m", "workloads.flash_attention", "device-run", "--counted",
    ]  # fmt: skip
    seconds = max(10.0, min(NCU_SECONDS, clock.left - 0.2 * clock.total))
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    rows = list(counted(done.stdout))
    return rows or {"error": f"ncu: {(done.stdout + done.stderr)[-400:]}"}


def counted(text: str) -> Iterator[Facts]:
    """Rows of ncu's CSV, one a kernel, beside the case of `COUNTED` that launched it."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels: dict[str, Facts] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if row.get("Metric Name") in _METRICS:
            one = kernels.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
            one[_METRICS[row["Metric Name"]]] = float(row["Metric Value"].replace(",", ""))
    launched = [(case, name) for case in COUNTED for name in _launched(case)]
    for (case, name), one in zip(launched, kernels.values(), strict=False):
        yield {"case": case, "expected": name, **one}


def _launched(case: str) -> Sequence[str]:
    """Kernels that one case launches, in order; the forward pass before a backward pass is one of them."""
    if case.startswith("backward"):
        return "forward", "row_sums", "query_gradient", "key_gradient"
    return ("decode", "combine") if case.startswith("decode") else ("forward",)


def run_counted() -> int:
    """Launch each case once, for ncu."""
    for case in COUNTED:
        kind, *rest = case.split()
        length, heads, head = map(int, rest[-3:])
        q, k, v = (_random(1, heads, length, head) for _ in range(3))
        if kind == "decode":
            launch.decode(q[:, :, :1].contiguous(), k, v, False, head**-0.5)
            continue
        causal = "causal" in rest
        out, logsum = launch.forward(q, k, v, causal, head**-0.5)
        if kind == "backward":
            launch.backward(v, q, k, v, out, logsum, causal, head**-0.5)
    torch.cuda.synchronize()
    return 0
