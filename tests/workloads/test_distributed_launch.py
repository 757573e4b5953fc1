"""Processes that fail, die or hang end the run with a message, and leave nothing behind."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.workloads.distributed_workers import dies, fails, leaves, names_itself, sleeps
from workloads.distributed.launch import WorkerError, run_processes


def test_results_come_in_the_order_of_ranks_from_processes_that_are_gone() -> None:
    pids = run_processes(names_itself, 3)
    assert len({*pids, os.getpid()}) == 4
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("function", "timeout", "text"),
    [
        (fails, 30.0, "rank 1 failed: ValueError: no gradient today"),
        (dies, 30.0, "rank 1 was killed by signal 9"),
        (leaves, 30.0, "rank 0 ended with exit code 7"),
        (sleeps, 2.0, "ranks 0, 1 have not ended after 2 s"),
    ],
)
def test_what_goes_wrong_is_said(function: Callable[[], Any], timeout: float, text: str) -> None:
    start = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        run_processes(function, 2, timeout=timeout)
    assert str(caught.value) == text
    assert time.monotonic() - start < 15
