"""Traced collectives against those that PyTorch calls in real processes: pattern, payload and order."""

import pytest

from frontends import trace_ranks, trace_training_step
from tests.frontends.parallel import collectives, dims
from tests.frontends.parallel_real import PROGRAMS, listen
from workloads.distributed.launch import run_processes


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_a_trace_has_the_collectives_of_the_real_program_in_their_order() -> None:
    ranks = run_processes(listen, 2)
    assert ranks[0] == ranks[1]
    for name, (dimension, build) in PROGRAMS.items():
        graph = trace_ranks(build, trace_training_step, mesh={dimension: 2}, ranks=[0])[0]
        traced = [(dims(op).pattern, dims(op).nbytes) for op in collectives(graph)]
        assert len(traced) > 2
        assert traced == ranks[0][name], (name, traced, ranks[0][name])
