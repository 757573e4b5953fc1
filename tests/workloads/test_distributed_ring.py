"""The ring that is written out, against torch's own all-reduce, in real processes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.distributed_workers import sums_all, sums_in_pairs
from workloads.distributed.launch import run_processes
from workloads.distributed.ring import sent_bytes

SIZES = [
    (elements, dtype, columns)
    for elements, columns in ((1, 1), (2, 1), (3, 1), (7, 1), (64, 1), (1001, 1), (42, 6))
    for dtype in (torch.float32, torch.float64, torch.int64)
]


@pytest.mark.parametrize("world", [1, 3, 4])
def test_the_ring_sums_as_torch_does_and_counts_what_it_sends(world: int) -> None:
    for rank, results in enumerate(run_processes(sums_all, world, SIZES)):
        for (elements, dtype, _), (equal, sent) in zip(SIZES, results, strict=True):
            assert equal
            assert sent == sent_bytes(elements, dtype.itemsize, world, rank)


def test_a_ring_over_part_of_the_ranks() -> None:
    # 0 + 2 and 1 + 3; five elements in chunks of 3 and 2: both chunks travel once as sum and once as result.
    assert run_processes(sums_in_pairs, 4) == [(2.0, 20), (4.0, 20), (2.0, 20), (4.0, 20)]


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_all_ranks_together_send_twice_n_less_one_times_the_tensor(elements: int, world: int) -> None:
    assert sum(sent_bytes(elements, 4, world, place) for place in range(world)) == 2 * (world - 1) * elements * 4
