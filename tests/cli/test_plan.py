"""``xpusim plan`` as its user types it, on a small model and one node; the estimates beside plans played in full."""

import json
import re
from typing import Any

import pytest

from frontends import trace_training_step
from hw_models import load_chip, load_system
from simulator.cli.main import main
from simulator.cli.parallel_options import price_collectives
from simulator.parallel.plan import Plan
from simulator.parallel.run import machine, training_run
from simulator.parallel.search import Estimator
from simulator.parallel.shard import shard
from workloads import build

SMALL = ("gpt2", "--system", "dgx-a100", "--batch", "64", "--seq", "512")


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert main(["plan", *SMALL, "--best", "3", "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_small_model_wants_data_parallelism(ranked: dict[str, Any]) -> None:
    best = ranked["best"]
    assert (best[0]["plan"]["dp"], best[0]["plan"]["tp"], best[0]["plan"]["pp"]) == (8, 1, 1)
    assert [each["seconds"] for each in best] == sorted(each["seconds"] for each in best)
    assert all(each["fits"] for each in best)
    assert len(best) == 3
    assert 0 < ranked["fitting"] <= ranked["considered"]
    assert {"data parallel alone", "no pipeline"} <= {each["name"] for each in ranked["naive"]}


def test_the_table_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, "--best", "1"]) == 0
    out = capsys.readouterr().out
    assert "gpt2 train, batch 64 of 512 tokens, bf16 on 8 chips of dgx-a100" in out
    assert "Why the obvious ones lose" in out
    # data parallelism alone is the best here: the row says so, with the time of the ranking
    best = next(line for line in out.splitlines() if line.lstrip().startswith("1 "))
    alone = next(line for line in out.splitlines() if line.lstrip().startswith("no pipeline"))
    assert "it does not: it is" in alone
    assert re.findall(r"[\d.]+ ms", best)[0] == re.findall(r"[\d.]+ ms", alone)[0]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(dp=8, precision="mixed"),
        Plan(dp=4, tp=2, sp=True, precision="mixed", microbatch=2),
        Plan(dp=2, pp=4, precision="mixed", recompute="full"),
        Plan(dp=2, tp=2, pp=2, sp=True, schedule="interleaved", interleave=3, precision="mixed"),
        Plan(dp=4, pp=2, zero=1, precision="mixed"),
        Plan(dp=8, zero=3, precision="mixed"),
    ],
    ids=str,
)
def test_estimates_are_near_what_is_played(plan: Plan) -> None:
    """Within 15 % in time and 10 % in memory: near enough to choose what is played in full."""
    batch = 64
    system = load_system("dgx-a100")
    on = machine(system, load_chip(system.chip), price_collectives)
    made = build("gpt2-medium", "train", plan.microbatch, 512)
    graph = trace_training_step(
        made.module, made.args, made.kwargs, loss=made.loss, optimizer="adamw", workload=made.workload, dtype="bf16"
    )
    estimate = Estimator(on, lambda _: graph, 24, batch).estimate(plan)
    run = training_run(shard(graph, plan), plan, on, graph.workload, graph.model_flops, batch)
    assert estimate.time == pytest.approx(run.step.time, rel=0.15)
    assert estimate.memory == pytest.approx(run.memory[run.fullest].total, rel=0.10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SMALL, "--phase", "decode"), "--phase decode: plans are searched for training; for inference compare runs"),
        ((*SMALL, "--best", "0"), "--best 0: must be at least 1"),
        (
            ("gpt2", "--system", "dgx-a100", "--set", "links.nvlink.size=13", "--batch", "3"),
            "no plan of 13 chips divides 12 layers, 12 heads and a batch of 3",
        ),
    ],
)
def test_what_cannot_be_searched(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"
