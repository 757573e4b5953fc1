"""Requests from distributions and from traces: means, seeds, known columns, and every fault of a file at once."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.errors import SpecError, UsageError
from simulator.serving.arrivals import Pattern, length, make, rate
from simulator.serving.metrics import objective
from simulator.serving.traces import column_mapping, read_trace
from simulator.units import PS_PER_SECOND


def pattern(process: str = "poisson", per_second: float = 4.0) -> Pattern:
    return Pattern(per_second, length("lognormal:512", "--prompt"), length("exponential:128", "--output"), process)


@pytest.mark.parametrize("process", ["poisson", "uniform", "gamma"])
def test_every_process_keeps_its_rate(process: str) -> None:
    requests = make(pattern(process), 20_000, seed=1)
    assert 20_000 / (requests[-1].arrival / PS_PER_SECOND) == pytest.approx(4.0, rel=0.04)


def test_bursts_vary_more_than_poisson_and_uniform_not_at_all() -> None:
    def variation(process: str) -> float:
        times = [each.arrival for each in make(pattern(process), 20_000, seed=1)]
        gaps = [b - a for a, b in pairwise(times)]
        mean = sum(gaps) / len(gaps)
        return math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean

    assert variation("uniform") == pytest.approx(0, abs=1e-6)
    assert variation("poisson") == pytest.approx(1, rel=0.03)
    assert variation("gamma") == pytest.approx(2, rel=0.06)


def test_lengths_follow_their_distribution() -> None:
    requests = make(pattern(), 20_000, seed=2)
    prompts = sorted(each.prompt for each in requests)
    assert prompts[10_000] == pytest.approx(512, rel=0.03)  # the median of the lognormal
    # and one sigma above it lies at 512 e
    assert prompts[int(0.8413 * 20_000)] == pytest.approx(512 * math.e, rel=0.05)
    outputs = [each.output for each in requests]
    assert sum(outputs) / len(outputs) == pytest.approx(128.5, rel=0.03)  # rounded up


def test_equal_seeds_give_equal_requests() -> None:
    assert make(pattern(), 50, seed=7) == make(pattern(), 50, seed=7) != make(pattern(), 50, seed=8)


def test_a_shared_prefix_makes_every_prompt_longer() -> None:
    shared = Pattern(1.0, length("10", "--prompt"), length("1", "--output"), shared=100)
    assert [(each.prompt, each.prefix) for each in make(shared, 1, 0)] == [(110, ("shared", 100))]


_FORMS = "a number, constant:N, uniform:LOW:HIGH, lognormal:MEDIAN[:SIGMA] or exponential:MEAN"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lognorml:5", f"--prompt lognorml:5: unknown distribution; did you mean 'lognormal'? (wanted {_FORMS})"),
        ("uniform:9:3", "--prompt uniform:9:3: LOW is above HIGH"),
        ("uniform:9", f"--prompt uniform:9: wanted {_FORMS}, with numbers above 0"),
        ("-3", f"--prompt -3: wanted {_FORMS}, with numbers above 0"),
        ("constant:x", f"--prompt constant:x: wanted {_FORMS}, with numbers above 0"),
    ],
)
def test_distributions_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        length(text, "--prompt")
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["0", "-1/s", "4/day", "fast", "nan"])
def test_rates_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError) as error:
        rate(text)
    assert str(error.value) == f"--rate {text}: wanted requests a second above 0, such as 4/s or 30/min"


def test_a_process_that_is_not_known() -> None:
    with pytest.raises(UsageError) as error:
        make(pattern("poison"), 1, 0)
    wanted = "--arrivals poison: unknown; did you mean 'poisson'? (known: poisson, uniform, gamma)"
    assert str(error.value) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft=1s,tbot=5ms", "--slo tbot=5ms: wanted the form ttft=1s,tpot=50ms,e2e=20s"),
        (
            "ttft=1",
            "--slo ttft=1: '1' is not a time (expected the form '3.1 us'; units are s, ms, us, ns, ps); "
            "wanted the form ttft=1s,tpot=50ms,e2e=20s",
        ),
    ],
)
def test_objectives_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        objective(text)
    assert str(error.value) == message


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def triples(path: Path, columns: str | None = None) -> list[tuple[float, int, int]]:
    return [
        (each.arrival / PS_PER_SECOND, each.prompt, each.output) for each in read_trace(path, column_mapping(columns))
    ]


def test_our_own_columns_in_any_order_and_sorted_by_arrival(tmp_path: Path) -> None:
    path = write(tmp_path, "output,arrival,prompt\n7,3.5,100\n8,1.25,200\n\n")
    assert triples(path) == [(0.0, 200, 8), (2.25, 100, 7)]


def test_azures_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n",
    )
    assert triples(path) == [(0.0, 4808, 10), (0.052, 3180, 8)]


def test_burstgpts_columns_and_failed_requests(tmp_path: Path) -> None:
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path = write(tmp_path, head + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n")
    assert triples(path) == [(0.0, 472, 18), (40.0, 1087, 1)]


def test_a_mapping_of_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "t,in,out\n0,5,6\n")
    assert triples(path, "arrival=t,prompt=in,output=out") == [(0.0, 5, 6)]


def test_all_faults_of_a_trace_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "arrival,prompt,output\n1,5,6\nsoon,0,6\n2,5\n3,5.5,many\n")
    with pytest.raises(SpecError) as error:
        read_trace(path)
    assert str(error.value).splitlines() == [
        f"{path}: line 3, column arrival: 'soon' is neither seconds nor a date and time",
        f"{path}: line 3, column prompt: '0' is not a whole number of tokens of at least 1",
        f"{path}: line 4, column output: '' is not a number of tokens",
        f"{path}: line 5, column prompt: '5.5' is not a whole number of tokens of at least 1",
        f"{path}: line 5, column output: 'many' is not a number of tokens",
    ]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", None, "empty; wanted a header and a row for each request"),
        ("arrival,prompt,output\n", None, "no requests below the header"),
        (
            "a,b\n1,2\n",
            None,
            "line 1: columns a, b are not known; wanted arrival, prompt, output, or those of Azure or BurstGPT, "
            "or a mapping: --columns arrival=X,prompt=Y,output=Z",
        ),
        (
            "when,in,out\n1,2,3\n",
            "arrival=when,prompt=inn,output=out",
            "line 1: no column 'inn'; did you mean 'in'? (columns: when, in, out)",
        ),
    ],
)
def test_traces_that_cannot_be_read(tmp_path: Path, text: str, columns: str | None, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SpecError) as error:
        read_trace(path, column_mapping(columns))
    assert str(error.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arival=t", "--columns arival=t: wanted arrival=X,prompt=Y,output=Z; did you mean 'arrival'?"),
        ("arrival=t", "--columns arrival=t: prompt, output missing; wanted arrival=X,prompt=Y,output=Z"),
    ],
)
def test_mappings_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        column_mapping(text)
    assert str(error.value) == message


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        read_trace(tmp_path / "none.csv")
    assert str(error.value) == f"{tmp_path / 'none.csv'}: cannot be read: No such file or directory"
