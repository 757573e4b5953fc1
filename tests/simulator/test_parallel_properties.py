"""What holds for every model and every plan."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simulator.graph import check
from simulator.parallel.plan import Plan, Precision, Recompute
from simulator.parallel.shard import shard
from simulator.parallel.stage import Stage
from tests.simulator.shards import calls, model_flops, small, step

SIZES = st.fixed_dictionaries(
    {
        "heads": st.sampled_from([4, 8, 16]),
        "kv_heads": st.sampled_from([1, 2, 4, 8, 16]),
        "head_dim": st.sampled_from([8, 16, 32]),
        "width": st.sampled_from([32, 64, 128]),
        "ffn": st.sampled_from([32, 64, 256]),
        "vocab": st.sampled_from([64, 128, 512]),
        "qk_norm": st.booleans(),
        "tied": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    sizes=SIZES,
    batch=st.sampled_from([1, 2, 4]),
    seq=st.sampled_from([8, 16, 32, 64]),
    tp=st.sampled_from([2, 4]),
    sp=st.booleans(),
)
def test_sizes_that_coincide_are_not_confused(sizes: dict[str, int], batch: int, seq: int, tp: int, sp: bool) -> None:
    """Width, heads, positions and vocabulary may be the same number: axes are recognised all the same."""
    assume(sizes["heads"] % sizes["kv_heads"] == 0 and (sizes["kv_heads"] % tp == 0 or tp % sizes["kv_heads"] == 0))
    graph = step.__wrapped__(small("llama-8b", layers=2, **sizes), batch, seq)
    stage = shard(graph, Plan(tp=tp, sp=sp))[0]
    if sizes["kv_heads"] % tp == 0:
        assert model_flops([stage]) * tp == graph.model_flops
        assert not stage.notes
    assert stage.gradient_bytes * 2 == stage.weight_bytes * 2 == stage.optimizer_bytes
    activation, pairs = batch * seq * sizes["width"] * 2, 2 * 2 + 1
    both = {("all_gather", activation): pairs, ("reduce_scatter", activation): pairs}
    expected = Counter(both) if sp else Counter({("all_reduce", activation): pairs})
    assert calls(stage.forward) == expected + Counter({("all_reduce", batch * seq * 4): 3})
    assert calls(stage.backward) == expected + (Counter({("all_gather", activation): pairs}) if sp else Counter())


MODES: tuple[tuple[Recompute, Precision], ...] = (("none", "same"), ("full", "mixed"))
PLANS = [
    Plan(dp=dp, tp=tp, pp=pp, sp=sp, zero=zero, recompute=mode, precision=precision)
    for dp, tp, pp, sp, zero, (mode, precision) in product((1, 2), (1, 2), (1, 4), (False, True), range(4), MODES)
    if not (sp and tp == 1) and not (zero and dp == 1)
]


@pytest.mark.parametrize("name", ["gpt2", "llama-8b"])
def test_every_plan_gives_graphs_that_keep_the_rules(name: str) -> None:
    graph = step(small(name))
    for plan in PLANS:
        stages = shard(graph, plan)
        assert model_flops(stages) * plan.tp == graph.model_flops, plan
        for stage in stages:
            keeps_the_rules(stage)


def keeps_the_rules(stage: Stage) -> None:
    """Ids and dependencies are sound, nothing is written beyond a storage, and a pass holds what is kept."""
    for graph in (stage.forward, stage.backward, stage.last_backward, stage.optimizer):
        for index, op in enumerate(graph):
            check(op, index, len(graph.storages))
            assert all(each.nbytes <= graph.storages[each.storage].nbytes for each in op.outputs), op.name
    assert stage.activation_bytes <= min(stage.peak_forward_bytes, stage.peak_backward_bytes)
