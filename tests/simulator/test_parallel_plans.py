"""Which plans the search looks at."""

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.parallel.plan import Plan, Shape
from simulator.parallel.plans import plans

MODEL = Shape(layers=4, heads=4, kv_heads=2, seq=64)


def test_all_ways_of_dividing_four_ranks() -> None:
    # 4 = dp x tp x pp in six ways, and all of them divide four layers and heads
    found = {(plan.dp, plan.tp, plan.pp) for plan in plans(MODEL, 4, 8)}
    assert found == {(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)}


def test_variants_of_one_way_of_dividing() -> None:
    # dp 4, batch 8: microbatches 1 and 2, zero 0 to 3, three ways of recomputing; one stage has one schedule
    found = [plan for plan in plans(MODEL, 4, 8) if plan.dp == 4]
    assert len(found) == len(set(found)) == 2 * 4 * 3
    # pp 2, dp 2: microbatches 1, 2, 4 (4, 2, 1 of them), of which the first two divide into rounds of two stages
    found = [plan for plan in plans(MODEL, 4, 8) if (plan.dp, plan.pp) == (2, 2)]
    assert len(found) == len(set(found)) == (3 + 3 + 2) * 4 * 3
    assert {plan.interleave for plan in found} == {1, 2}


@settings(deadline=None)
@given(st.sampled_from([1, 2, 6, 8, 12]), st.sampled_from([1, 4, 24]), st.sampled_from([0, 8]))
def test_every_plan_divides_the_model(world: int, batch: int, experts: int) -> None:
    model = Shape(layers=6, heads=12, kv_heads=4, experts=experts, seq=48)
    for plan in plans(model, world, batch):
        plan.check(model, chips=world, global_batch=batch)  # raises if it does not


def test_experts_are_divided_among_replicas() -> None:
    found = {plan.ep for plan in plans(Shape(layers=2, heads=2, experts=4), 8, 8, zero=(0,)) if plan.dp == 8}
    assert found == {1, 2, 4}  # 8 does not divide 4 experts


def test_what_divides_nothing_has_no_plan() -> None:
    assert list(plans(Shape(layers=1, heads=1), 7, 3)) == []
    assert next(iter(plans(Shape(layers=1, heads=1), 1, 3))) == Plan(precision="mixed")
