"""Plans: what is refused, word for word and all at once, and where ranks stand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import UsageError
from simulator.parallel.plan import Plan, Shape, parse_plan

LLAMA_70B = Shape(layers=80, heads=64, kv_heads=8, seq=4096)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("tp=8,zeros=2", {}, "unknown part 'zeros' of the plan 'tp=8,zeros=2'; did you mean 'zero'?"),
        ("tp=8,tp=2", {}, "the plan 'tp=8,tp=2' names tp twice"),
        ("tp=eight", {}, "cannot read tp='eight' of the plan 'tp=eight'; expected the form dp=2,tp=4,sp"),
        ("tp", {}, "cannot read tp='' of the plan 'tp'; expected the form dp=2,tp=4,sp"),
        ("", {}, "unknown part '' of the plan ''"),
        (
            "tp=0,pp=0",
            {"zero": 4, "schedule": "1f1"},
            "plan dp=1,tp=0,pp=0,ep=1: tp is 0, needs at least 1; pp is 0, needs at least 1; "
            "schedule is '1f1'; did you mean '1f1b'? (known: 1f1b, gpipe, interleaved); "
            "zero is 4; the stages are 0 to 3",
        ),
        (
            "sp,ep=2",
            {"zero": 1, "interleave": 2},
            "plan dp=1,tp=1,pp=1,ep=2,sp: zero=1 divides over dp, which is 1; sp divides the sequence over tp, "
            "which is 1; ep=2 takes its ranks from dp=1 and does not divide it; "
            "interleave=2 needs schedule=interleaved, not 1f1b",
        ),
        (
            "pp=4",
            {"schedule": "interleaved"},
            "plan dp=1,tp=1,pp=4,ep=1: schedule=interleaved needs interleave and pp above 1",
        ),
    ],
)
def test_plans_that_make_no_sense_are_refused(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_plan(text, **options)
    assert str(caught.value) == message


def test_all_that_a_plan_does_not_divide_is_said_at_once() -> None:
    plan = parse_plan("dp=3,tp=12,pp=100,ep=3,sp", microbatch=2)
    with pytest.raises(UsageError) as caught:
        plan.check(LLAMA_70B, chips=512, global_batch=100)
    assert str(caught.value) == (
        "plan dp=3,tp=12,pp=100,ep=3,sp: tp=12 does not divide 64 attention heads; tp=12 and 8 key/value heads: "
        "neither divides the other; pp=100 stages for 80 layers; ep=3, but the model has no experts; "
        "sp: tp=12 does not divide a sequence of 4096; dp x tp x pp = 3 x 12 x 100 = 3600 ranks on 512 chips; "
        "a global batch of 100 is not divisible by dp x microbatch = 3 x 2 = 6"
    )


@pytest.mark.parametrize(
    ("plan", "model", "message"),
    [
        (
            Plan(pp=4, interleave=3, schedule="interleaved"),
            Shape(layers=8),
            "plan dp=1,tp=1,pp=4,ep=1: pp x interleave = 4 x 3 = 12 for 8 layers",
        ),
        (Plan(dp=4, ep=4), Shape(layers=8, experts=6), "plan dp=4,tp=1,pp=1,ep=4: ep=4 does not divide 6 experts"),
    ],
)
def test_plans_that_do_not_divide_a_model(plan: Plan, model: Shape, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan.check(model)
    assert str(caught.value) == message


def test_more_ranks_than_key_value_heads_are_allowed_where_one_divides_the_other() -> None:
    parse_plan("tp=16,pp=4").check(LLAMA_70B, chips=64, global_batch=7)


def test_an_unknown_group_and_a_rank_outside_are_named() -> None:
    plan = parse_plan("dp=2,tp=4")
    with pytest.raises(UsageError) as caught:
        plan.ranks_of("dq")
    assert str(caught.value) == "unknown group 'dq'; did you mean 'dp'? (known: tp, dp, ep, pp)"
    with pytest.raises(UsageError) as caught:
        plan.ranks_of("tp", 8)
    assert str(caught.value) == "rank 8 lies outside dp=2,tp=4,pp=1,ep=1, which has ranks 0 to 7"


def test_ranks_stand_as_megatron_places_them() -> None:
    # Megatron's example for 16 GPUs with tp=2, pp=4: tensor [0,1], data [0,2] and [1,3], pipeline [0,4,8,12].
    plan = parse_plan("dp=2,tp=2,pp=4")
    assert plan.ranks_of("tp", 5) == (4, 5)
    assert plan.ranks_of("dp", 1) == (1, 3)
    assert plan.ranks_of("pp", 0) == (0, 4, 8, 12)


def test_replicas_of_an_expert_are_as_far_apart_as_there_are_shares_of_experts() -> None:
    plan = parse_plan("dp=4,tp=2,ep=2")  # ranks 0, 2, 4, 6 are replicas; 0 and 4 hold the same experts
    assert plan.ranks_of("ep", 2) == (0, 2)
    assert plan.expert_data_ranks(0) == (0, 4)
    assert plan.expert_data_ranks(7) == (3, 7)


@given(st.tuples(*(st.integers(1, 5) for _ in range(3))))
def test_each_rank_is_in_one_group_of_a_kind(sizes: tuple[int, int, int]) -> None:
    dp, tp, pp = sizes
    plan = Plan(dp=dp, tp=tp, pp=pp)
    for name in ("tp", "dp", "pp"):
        groups = {plan.ranks_of(name, rank) for rank in range(plan.world)}
        assert sorted(rank for group in groups for rank in group) == list(range(plan.world))


@given(st.builds(Plan, dp=st.integers(1, 9), tp=st.integers(2, 9), pp=st.integers(1, 9), sp=st.booleans()))
def test_a_plan_reads_what_it_prints(plan: Plan) -> None:
    assert parse_plan(str(plan)) == plan
