"""What the processes of the distributed tests run; they import this file, and nothing of pytest."""

import os
import signal
import time

import torch
import torch.distributed as dist

from workloads.distributed.ring import all_reduce


def sums(elements: int, dtype: torch.dtype, columns: int) -> tuple[bool, int]:
    """Sum a tensor with the ring and with torch; whether they are equal, and the bytes sent.

    Whole numbers, so that the order of additions does not matter; with *columns* the tensor is not contiguous.
    """
    random = torch.Generator().manual_seed(dist.get_rank())
    given = torch.randint(-50, 50, (columns, elements // columns), generator=random).to(dtype)
    mine, theirs = given.T if columns > 1 else given, given.clone()
    theirs = theirs.T if columns > 1 else theirs
    sent = all_reduce(mine)
    dist.all_reduce(theirs) if columns == 1 else dist.all_reduce(theirs := theirs.contiguous())
    return bool((mine == theirs).all()), sent


def sums_all(sizes: list[tuple[int, torch.dtype, int]]) -> list[tuple[bool, int]]:
    """Run `sums` for each of *sizes* in one set of processes."""
    return [sums(*each) for each in sizes]


def sums_in_pairs() -> tuple[float, int]:
    """Sum over ranks (0, 2) and (1, 3), each pair by its own ring."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    tensor = torch.full((5,), float(dist.get_rank()))
    sent = all_reduce(tensor, groups[dist.get_rank() % 2])
    return float(tensor[4]), sent


def fails() -> None:
    """One rank raises, the others wait for it."""
    if dist.get_rank() == 1:
        raise ValueError("no gradient today")
    dist.all_reduce(torch.ones(1))


def dies() -> None:
    """One rank is killed from outside, as by the system when memory is short."""
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def leaves() -> None:
    """One rank ends without a word."""
    if dist.get_rank() == 0:
        os._exit(7)
    time.sleep(60)


def sleeps() -> int:
    """Take longer than anybody waits."""
    time.sleep(60)
    return os.getpid()


def names_itself() -> int:
    """Return the process id."""
    return os.getpid()
