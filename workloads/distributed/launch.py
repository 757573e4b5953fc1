"""Runs a function in several local processes over gloo; nothing hangs and no failure is lost.

Processes find each other through a file, so that no port has to be free.  The first process that fails or dies ends all
others, and its message is raised here.
"""

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from simulator.errors import XpuError

_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = ["torch.distributed.device_mesh", "workloads.distributed.trainer", __name__]  # once, not in every process
_POLL = 0.01  # seconds
_GRACE = 2.0  # seconds that processes have to end by themselves once one has failed


class WorkerError(XpuError):
    """A process of a parallel run failed, died or took too long; the message says which and why."""


def run_processes(function: Callable[..., Any], world: int, *args: Any, timeout: float = 120.0) -> list[Any]:
    """Return what ``function(*args)`` returns in each of *world* processes that share a gloo process group.

    *function* and *args* travel by pickle.  Raises WorkerError after *timeout* seconds, or as soon as a process ends
    without a result.
    """
    _CONTEXT.set_forkserver_preload(_LOADED)
    with tempfile.TemporaryDirectory(prefix="xpusim-") as name:
        folder = Path(name)
        processes = [
            _CONTEXT.Process(target=_worker, args=(function, rank, world, folder, timeout, args), daemon=True)
            for rank in range(world)
        ]
        try:
            for process in processes:
                process.start()
            _watch(processes, folder, timeout)
            return [torch.load(folder / f"result-{rank}", weights_only=False) for rank in range(world)]
        finally:
            _end(processes)


def _worker(
    function: Callable[..., Any], rank: int, world: int, folder: Path, timeout: float, args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if Path("/sys/class/net/lo").exists() else "lo0")
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'meeting'}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=timeout),
        )
        result = function(*args)
        torch.save(result, folder / f"saving-{rank}")
        (folder / f"saving-{rank}").rename(folder / f"result-{rank}")
        dist.barrier()  # nobody closes his end while another still reads
        dist.destroy_process_group()
    except BaseException as error:
        text = " ".join(traceback.format_exception_only(error)[-1].split())
        (folder / f"error-{rank}").write_text(text, encoding="utf-8")
        raise SystemExit(1) from None


def _watch(processes: Sequence[ForkServerProcess], folder: Path, timeout: float) -> None:
    """Wait until all have ended well; raise for the first that has not."""
    deadline = time.monotonic() + timeout
    while any(process.exitcode is None for process in processes):
        _raise_failed(processes, folder)
        if time.monotonic() > deadline:
            late = ", ".join(str(rank) for rank, process in enumerate(processes) if process.exitcode is None)
            raise WorkerError(f"ranks {late} have not ended after {timeout:g} s")
        time.sleep(_POLL)
    _raise_failed(processes, folder)


def _raise_failed(processes: Sequence[ForkServerProcess], folder: Path) -> None:
    if not any(process.exitcode for process in processes):
        return
    first = min((path for path in folder.glob("error-*")), key=lambda path: path.stat().st_mtime_ns, default=None)
    killed = [(rank, process.exitcode) for rank, process in enumerate(processes) if (process.exitcode or 0) < 0]
    if killed:  # the others then fail because of it
        rank, code = killed[0]
        raise WorkerError(f"rank {rank} was killed by signal {-(code or 0)}")
    if first is not None:
        raise WorkerError(f"rank {first.name.rpartition('-')[2]} failed: {first.read_text(encoding='utf-8')}")
    rank = next(rank for rank, process in enumerate(processes) if process.exitcode)
    raise WorkerError(f"rank {rank} ended with exit code {processes[rank].exitcode}")


def _end(processes: Sequence[ForkServerProcess]) -> None:
    """Let nothing that was started here outlive the call."""
    deadline = time.monotonic() + (_GRACE if all(process.exitcode == 0 for process in processes) else 0.0)
    for process in processes:
        if process.pid is not None:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
