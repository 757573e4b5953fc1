"""Folding of constants on graphs worked out by hand: what goes, what is held, and what may not."""

import pytest

from simulator.costs import Cost
from simulator.dims import MatmulDims
from simulator.graph import OperatorGraph, Phase, Role, Tensor, Workload
from simulator.memory import memory_timeline
from simulator.passes import compile_graph
from simulator.passes.constants import constants
from simulator.passes.prices import Prices
from tests.simulator.test_passes_fusion import MATMUL, MOVE, Maker, prices, targets
from tests.simulator.toys import cost

EYE = MatmulDims(2, 4, 4)


class ByBytes:
    """A chip on which a kernel takes a nanosecond for each byte."""

    ideal = False

    def costs(self, graph: OperatorGraph) -> list[Cost]:
        return [cost(memory=1_000 * op.nbytes) for op in graph]


def table(make: Maker, role: Role = Role.BUFFER) -> tuple[Tensor, Tensor]:
    """cos(frequencies) of a storage of *role*, and the result of a product that reads it."""
    frequencies, angles, out = make.tensor(8, role=role), make.tensor(8), make.tensor(8)
    make.op("cos", (frequencies,), (angles,))
    make.op("mm", (make.input(8), angles), (out,), MATMUL, EYE)
    return angles, out


def test_what_follows_from_a_buffer_is_held_in_place_of_being_computed() -> None:
    make = Maker()
    angles, out = table(make)
    found = constants(make.returns(out), prices())
    assert targets(found) == ["aten.mm"]
    assert found.operators[0].deps == ()
    assert found.storages[angles.storage].role is Role.BUFFER
    assert make.graph.storages[angles.storage].role is Role.ACTIVATION


def test_a_chain_goes_as_a_whole_and_only_its_end_is_held() -> None:
    make = Maker()
    positions, angles, out = make.tensor(8), make.tensor(8), make.tensor(8)
    make.op("arange", (), (positions,), MOVE)
    make.op("cos", (positions,), (angles,))
    make.op("mm", (make.input(8), angles), (out,), MATMUL, EYE)
    found = constants(make.returns(out), prices())
    assert targets(found) == ["aten.mm"]
    assert [found.storages[each.storage].role for each in (positions, angles)] == [Role.ACTIVATION, Role.BUFFER]


@pytest.mark.parametrize("role", [Role.INPUT, Role.WEIGHT, Role.CACHE, Role.ACTIVATION])
def test_what_follows_from_anything_else_is_computed(role: Role) -> None:
    make = Maker()
    _, out = table(make, role)
    assert len(constants(make.returns(out), prices())) == 2


def test_a_buffer_that_the_program_writes_is_no_constant() -> None:
    make = Maker()
    angles, out = table(make)
    frequencies = make.graph.operators[0].inputs[0]
    make.op("add_", (frequencies,), (frequencies,))
    assert len(constants(make.returns(out), prices())) == 3
    assert make.graph.storages[angles.storage].role is Role.ACTIVATION


def test_a_result_that_is_written_again_or_handed_out_is_computed() -> None:
    make = Maker()
    angles, out = table(make)
    make.op("mul_", (angles,), (angles,))
    assert len(constants(make.returns(out), prices())) == 3
    make = Maker()
    angles, out = table(make)
    assert len(constants(make.returns(out, angles), prices())) == 2


def test_random_numbers_are_drawn_each_time() -> None:
    make = Maker()
    noise, out = make.tensor(8), make.tensor(8)
    make.op("randn", (), (noise,), MOVE)
    make.op("mm", (make.input(8), noise), (out,), MATMUL, EYE)
    assert len(constants(make.returns(out), prices())) == 2


def test_what_the_optimizer_does_is_not_compiled() -> None:
    make = Maker()
    make.graph.workload = Workload("step", "train")
    step, weight = make.tensor(8), make.tensor(8, role=Role.WEIGHT)
    make.op("ones", (), (step,), MOVE, phase=Phase.OPTIMIZER)
    make.op("adamw", (step, weight), (weight,), phase=Phase.OPTIMIZER)
    assert len(constants(make.returns(), prices())) == 2


def test_a_loop_that_can_work_it_out_for_no_bytes_does_so() -> None:
    """exp of an arange of 16 B: the sum reads 16 B for it if it is held, none if it is worked out in its loop.

    A conversion of a buffer of 32 B is held: its result has 16 B.
    """
    make = Maker()
    positions, out = make.tensor(8), make.tensor(8)
    make.op("arange", (), (positions,), MOVE)
    make.op("add", (make.input(8), positions), (out,))
    assert len(constants(make.returns(out), Prices(ByBytes()))) == 2
    make = Maker()
    wide, narrow, out = make.tensor(16, role=Role.BUFFER), make.tensor(8), make.tensor(8)
    make.op("_to_copy", (wide,), (narrow,), MOVE)
    make.op("add", (make.input(8), narrow), (out,))
    assert targets(constants(make.returns(out), Prices(ByBytes()))) == ["aten.add"]


def two_tables() -> tuple[OperatorGraph, Tensor]:
    """Tables of 16 and 512 B, each for one of two products: held together, 480 B more than one after the other."""
    make = Maker()
    small, large, first, out = make.tensor(8), make.tensor(256), make.tensor(8), make.tensor(8)
    x = make.input(8)
    make.op("arange", (), (small,), MOVE)
    make.op("mm", (x, small), (first,), MATMUL, EYE)
    make.op("arange", (), (large,), MOVE)
    make.op("mm", (first, large), (out,), MATMUL, EYE)
    return make.returns(out), large


def test_buffers_that_do_not_fit_are_not_held() -> None:
    graph, large = two_tables()
    peak = memory_timeline(graph, range(4)).peak
    assert peak == 16 + 16 + 512 + 16  # x, the first product, the large table, the second product
    found = constants(graph, Prices(ByBytes(), capacity=peak + 16))
    assert targets(found) == ["aten.mm", "aten.mm"]  # with the small one held all the time it is 576 B
    found = constants(graph, Prices(ByBytes(), capacity=peak))
    assert targets(found) == targets(graph)
    assert found.storages[large.storage].role is Role.ACTIVATION
    assert memory_timeline(found, range(len(found))).peak <= peak


def test_the_report_says_what_is_held() -> None:
    make = Maker()
    _, out = table(make)
    graph = make.returns(out)
    done = compile_graph(graph, ByBytes(), lambda each: (len(each), "launch"), ("constants",))
    (report,) = done.reports
    assert (report.before.kernels, report.after.kernels) == (2, 1)
    assert (report.before.resident, report.after.resident) == (32, 32)  # frequencies and x; the table and x
    assert (report.before.nbytes, report.after.nbytes) == (32 + 48, 48)
    assert report.gone == (("m/cos", 1),)
