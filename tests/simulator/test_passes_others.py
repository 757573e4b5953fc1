"""Dead code, common subexpressions, attention, padding, the pass manager and compile mode, by hand."""

from dataclasses import replace

import pytest

from hw_models import load_chip
from simulator.costs import compute_model
from simulator.dims import AttentionDims, CollectiveDims, MatmulDims, RowDims
from simulator.errors import UsageError
from simulator.graph import OperatorGraph, OpKind, Phase, Role, Workload
from simulator.passes import INDUCTOR, PASSES, check_passes, compile_graph, graph_pass
from simulator.passes.attention import attention
from simulator.passes.cleaning import common, dead
from simulator.passes.padding import padding
from simulator.passes.prices import Prices
from simulator.result_json import as_dict
from simulator.scope import outside
from simulator.simulation import compiled_graph, simulate
from tests.simulator.test_passes_fusion import MATMUL, MOVE, REDUCE, Maker, prices, targets
from tests.simulator.toys import toy_chip, with_overheads


def test_what_nobody_reads_goes_and_then_what_only_it_read() -> None:
    make = Maker()
    a, t, u, out = make.input(8), make.tensor(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (t,), (u,))
    make.op("cos", (a,), (out,))
    found = dead(make.returns(out), prices())
    assert targets(found) == ["aten.cos"]
    assert found.operators[0].deps == ()


def test_state_gradients_and_collectives_are_not_dead() -> None:
    make = Maker()
    a, gradient, summed = make.input(8), make.tensor(8, role=Role.GRADIENT), make.tensor(8)
    make.op("copy_", (a,), (make.tensor(8, role=Role.CACHE),), MOVE)
    make.op("exp", (a,), (gradient,))
    make.op("all_reduce", (a,), (summed,), OpKind.COLLECTIVE, CollectiveDims("all_reduce", 16), group=(0, 1))
    assert len(dead(make.returns(), prices())) == 3


def test_the_same_result_is_worked_out_once() -> None:
    make = Maker()
    a, t, u, out = make.input(2, 8), make.tensor(2, 8), make.tensor(2, 8), make.tensor(2, 8)
    make.op("exp", (a,), (t,))
    make.op("exp", (a,), (u,))
    make.op("mul", (t, u), (out,))
    found = common(make.returns(out), prices())
    assert targets(found) == ["aten.exp", "aten.mul"]
    assert found.operators[1].inputs == (t, t)
    assert found.operators[1].deps == (0,)


@pytest.mark.parametrize(
    ("target", "shape", "piece"),
    [("add", (2, 8), (2, 8)), ("exp", (2, 8), (1, 8)), ("exp", (8, 8), (8, 8))],
    ids=["its constant is not known", "it may be another piece", "it may be transposed"],
)
def test_what_may_be_something_else_is_kept(target: str, shape: tuple[int, int], piece: tuple[int, int]) -> None:
    make = Maker()
    a = make.input(*shape)
    t, u = make.tensor(*piece), make.tensor(*piece)
    for made in (t, u):
        make.op(target, (replace(a, shape=piece),), (made,))
    assert len(common(make.returns(t, u), prices())) == 2


def test_a_result_is_not_common_if_its_operand_changed_in_between() -> None:
    make = Maker()
    a, t, u = make.tensor(2, 8), make.tensor(2, 8), make.tensor(2, 8)
    make.op("full", (), (a,), MOVE)
    make.op("exp", (a,), (t,))
    make.op("fill_", (), (a,), MOVE)
    make.op("exp", (a,), (u,))
    assert len(common(make.returns(t, u), prices())) == 4


def naive(make: Maker, *, keep: bool = False, masked: bool = True) -> OperatorGraph:
    """softmax(Q K^T / scale + mask) V of 2 heads, 4 queries, 8 keys, 16 columns; *keep*: as training does."""
    q, k, v = make.input(2, 4, 16), make.input(2, 16, 8), make.input(2, 8, 16)
    scores, scaled, shifted, shares = (make.tensor(2, 4, 8) for _ in range(4))
    out = make.tensor(2, 4, 16)
    first, second = MatmulDims(4, 8, 16, batch=2), MatmulDims(4, 16, 8, batch=2)
    make.op("bmm", (q, k), (scores,), MATMUL, first, flops=first.flops)
    make.op("div", (scores,), (scaled,), flops=64)
    if masked:
        make.op("add", (scaled, make.input(4, 8)), (shifted,), flops=64)
    make.op("_softmax", (shifted if masked else scaled,), (shares,), REDUCE, RowDims(8, 8), flops=320)
    make.op("bmm", (shares, v), (out,), MATMUL, second, flops=second.flops)
    return make.returns(out, *([shares] if keep else []))


def test_naive_attention_becomes_one_kernel_without_scores_in_memory() -> None:
    (fused,) = attention(naive(Maker()), prices())
    assert fused.kind is OpKind.ATTENTION
    assert fused.dims == AttentionDims(1, 2, 2, 4, 8, 16, 16)
    assert fused.flops == 2 * 2048 + 64 + 64 + 320  # two products of 2 x 2 x 4 x 8 x 16
    assert (fused.reads, fused.writes) == (256 + 512 + 512 + 64, 256)  # q, k, v and the mask; out


def test_attention_without_a_mask_is_found_too() -> None:
    (fused,) = attention(naive(Maker(), masked=False), prices())
    assert fused.target == "fused.div+_softmax+bmm"


def test_probabilities_that_are_kept_keep_attention_apart() -> None:
    graph = naive(Maker(), keep=True)
    assert attention(graph, prices()).operators == graph.operators


def test_a_softmax_along_the_queries_is_no_attention() -> None:
    graph = naive(Maker(), masked=False)
    graph.operators[2] = replace(graph.operators[2], dims=RowDims(8, 8, inner=8))
    assert attention(graph, prices()).operators == graph.operators


def head(columns: int) -> tuple[Maker, OperatorGraph]:
    make = Maker()
    x, w, logits = make.input(1024, 768), make.tensor(768, columns, role=Role.WEIGHT), make.tensor(1024, columns)
    dims = MatmulDims(1024, columns, 768)
    make.op("mm", (x, w), (logits,), MATMUL, dims, flops=dims.flops)
    return make, make.returns(logits)


def h200() -> Prices:
    return Prices(compute_model("tile", load_chip("h200")))


def test_a_vocabulary_of_50257_is_padded_to_50264() -> None:
    _, graph = head(50257)
    copy, product = padding(graph, h200())
    assert copy.target == "aten.constant_pad_nd"
    assert (copy.reads, copy.writes) == (2 * 768 * 50257, 2 * 768 * 50264)
    assert product.dims == MatmulDims(1024, 50264, 768)
    assert product.flops == graph.flops  # multiplying zeros is no work
    assert product.writes == 2 * 1024 * 50264
    assert product.deps == (0,)


def test_whole_rows_are_not_padded() -> None:
    _, graph = head(50264)
    assert padding(graph, h200()).operators == graph.operators


def test_a_product_where_the_copy_costs_more_is_not_padded() -> None:
    make = Maker()
    x, w, out = make.input(1, 768), make.tensor(768, 50257, role=Role.WEIGHT), make.tensor(1, 50257)
    dims = MatmulDims(1, 50257, 768)
    make.op("mm", (x, w), (out,), MATMUL, dims, flops=dims.flops)
    assert len(padding(make.returns(out), h200())) == 1


def test_products_of_one_operand_share_its_padded_copy() -> None:
    make, graph = head(50257)
    logits, gradient = graph.operators[0].outputs[0], make.tensor(1024, 768)
    w = replace(graph.operators[0].inputs[1], shape=(50257, 768))
    dims = MatmulDims(1024, 768, 50257)
    make.op("mm", (logits, w), (gradient,), MATMUL, dims, flops=dims.flops)
    found = padding(make.returns(gradient), h200())
    copies = [op for op in found if op.target == "aten.constant_pad_nd"]
    assert sorted(op.inputs[0].storage for op in copies) == sorted({w.storage, logits.storage})


def test_an_unknown_pass_comes_back_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        check_passes(["dead", "pointwize"])
    assert str(caught.value) == (f"unknown pass 'pointwize'; did you mean 'pointwise'? (known: {', '.join(PASSES)})")


def test_a_pass_of_ones_own_has_a_name_and_a_report() -> None:
    @graph_pass("nothing")
    def nothing(graph: OperatorGraph, _: Prices) -> OperatorGraph:
        return graph

    try:
        _, graph = head(8)
        done = compile_graph(graph, compute_model("fixed", toy_chip()), lambda _: (6_000, "launch"), ["nothing"])
    finally:
        del PASSES["nothing"]
    (report,) = done.reports
    assert (report.name, report.made, report.gone) == ("nothing", (), ())
    assert report.before == report.after


def chain() -> OperatorGraph:
    make = Maker()
    a, t, out = make.input(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (t,), (out,))
    return make.returns(out)


@pytest.mark.parametrize(("launch", "time"), [(5_000, 11_000), (None, 16_000)])
def test_compile_mode_fuses_and_launches_from_the_wrapper(launch: int | None, time: int) -> None:
    """One kernel of 6 ns after one launch of 5 ns; a chip that gives no launch takes a dispatch, here 10 ns."""
    chip = with_overheads(toy_chip(), gap=1_000, host_dispatch=10_000, host_submit=3_000)
    chip = replace(chip, overheads=replace(chip.overheads, host_launch=launch))
    result = simulate(chain(), chip, mode="compile", fidelity="fixed")
    assert result.time == time
    assert simulate(chain(), chip, mode="eager", fidelity="fixed").time == 46_000  # 2 x 2 dispatches, and the last 6 ns
    assert [report.name for report in result.passes] == list(INDUCTOR)
    before, after = result.passes[0].before, result.passes[-1].after
    assert (before.kernels, before.nbytes, after.kernels, after.nbytes) == (2, 64, 1, 32)
    assert after.time == time
    assert as_dict(result)["passes"][list(INDUCTOR).index("pointwise")]["made"] == [{"what": "m/exp+neg", "count": 1}]


def test_other_modes_have_no_passes() -> None:
    result = simulate(chain(), toy_chip(), fidelity="fixed")
    assert result.passes == ()
    assert as_dict(result)["passes"] == []


def test_the_loss_and_the_optimizer_are_not_compiled() -> None:
    make = Maker()
    make.graph.workload = Workload("step", "train")
    x, *others = make.tensor(8, role=Role.WEIGHT), *(make.tensor(8) for _ in range(4))
    y, loss, gradient, weight = others
    make.op("exp", (x,), (y,))
    make.op("neg", (y,), (loss,))
    make.op("neg", (loss,), (gradient,), phase=Phase.BACKWARD)
    make.op("exp", (gradient,), (weight,), phase=Phase.BACKWARD)
    make.op("adamw", (weight,), (x,), phase=Phase.OPTIMIZER)
    for place in (1, 2):
        make.graph.operators[place] = replace(make.graph.operators[place], module="")
    assert outside(make.graph) == {1, 2, 4}
    assert len(compiled_graph(make.returns(loss), toy_chip(), "fixed").graph) == 5
