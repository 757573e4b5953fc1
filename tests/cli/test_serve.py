"""``xpusim serve`` as its user types it: what it prints and writes, and every wrong input word for word."""

import json
from pathlib import Path

import pytest

from simulator.cli.main import main

SMALL = ("serve", "gpt2", "--chip", "h200", "--prompt", "uniform:10:200", "--output", "uniform:5:40")


def serve(*arguments: str) -> int:
    return main([*SMALL, *arguments])


def test_a_run_prints_its_verdict_and_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("run.json", "page.html", "trace.json")]
    options = ("--json", str(files[0]), "--html", str(files[1]), "--timeline", str(files[2]))
    assert serve("--rate", "50/s", "--count", "80", "--slo", "ttft=1s,tpot=50ms", *options) == 0
    text = capsys.readouterr().out
    for word in ("TTFT", "TPOT", "end to end", "goodput", "KV cache", "preemptions", "rejected", "Keeps up with "):
        assert word in text
    data = json.loads(files[0].read_text())
    assert len(data["requests"]) == 80
    figures = data["figures"]
    assert figures["requests"] == 80
    assert figures["met"] == 1
    assert figures["goodput"] == figures["requests_per_second"]
    assert sum(each["output"] for each in data["requests"]) == pytest.approx(
        figures["tokens_per_second"] * figures["seconds"]
    )
    assert sum(data["seconds_by_bound"].values()) == pytest.approx(figures["seconds"], rel=1e-6)
    assert data["verdict"].startswith("Keeps up with ")
    page = files[1].read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 5
    events = json.loads(files[2].read_text())["traceEvents"]
    assert sum(each.get("args", {}).get("steps", 0) for each in events if each["ph"] == "X") == figures["steps"]


def test_a_rate_that_can_never_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve("--rate", "90000/s", "--count", "200", "--max-batch", "4") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "requests/s can never be served: it saturates at " in text


def test_the_saturation_point_does_not_depend_on_the_number_of_requests(tmp_path: Path) -> None:
    out, found = tmp_path / "run.json", []
    for count in ("30", "300"):
        assert serve("--rate", "50/s", "--count", count, "--prompt", "100", "--output", "20", "--json", str(out)) == 0
        data = json.loads(out.read_text())
        assert data["saturation_known"]
        found.append(data["saturation"])
    assert found[0] == pytest.approx(found[1], rel=0.05)


ONE_STEP = ("--max-tokens", "65536", "--prompt", "20")  # all requests are read at once: none waits


def test_too_few_requests_never_say_never(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    assert serve("--rate", "90000/s", "--count", "15", "--max-batch", "2000", *ONE_STEP, "--json", str(out)) == 0
    data = json.loads(out.read_text())
    assert not data["saturation_known"]
    most = f"{data['saturation']:,.0f}"
    assert (
        f" requests/s may be too many: it serves at least {most} requests/s (too few requests to tell); "
        in (data["verdict"])
    )


@pytest.mark.parametrize("count", [20, 40])
def test_a_slow_link_is_named_as_the_limit(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.json"
    pools = ("--disaggregate", "prefill=1,decode=1", "--link", "10MB/s")
    assert serve("--rate", "50/s", "--count", str(count), *pools, "--json", str(out)) == 0
    data = json.loads(out.read_text())
    # 36,864 B a position of all prompts over 10 MB/s: what the link takes, whatever the number of requests
    took = 36_864 * sum(each["prompt"] for each in data["requests"]) / 10e6
    assert data["link_seconds"] == pytest.approx(took)
    assert data["saturation"] == pytest.approx(count / took)
    assert data["bound"] == "interconnect"
    assert (
        f"can never be served: it saturates at {count / took:.3g} requests/s; the link between the pools "
        in (data["verdict"])
    )
    needed = 10 * data["offered"] * took / count
    assert data["demand"].startswith(
        "It asks for interconnect, a faster link between the pools: 10 MB/s carry "
        f"{count / took:.3g} requests/s; {needed:.3g} MB/s for the {data['offered']:.3g} requests/s offered; "
    )
    text = capsys.readouterr().out
    assert "link busy " in text
    assert "wait for KV " in text


def test_a_small_cache_is_named_as_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve("--rate", "9000/s", "--count", "80", "--blocks", "32") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "the KV cache limits the batch to " in text
    assert "It asks for memory capacity, or a smaller KV cache: requests wait for blocks in " in text


def test_two_pools_and_a_draft(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    pools = ("--disaggregate", "prefill=1,decode=2", "--link", "50GB/s")
    assert serve("--rate", "50/s", "--count", "40", *pools, "--json", str(out)) == 0
    data = json.loads(out.read_text())
    # all prompts cross, 36,864 B a position
    assert data["transferred_bytes"] == 36_864 * sum(each["prompt"] for each in data["requests"])
    draft = ("--speculate", "draft=gpt2,tokens=2,acceptance=0.5", "--quant", "w4", "--kv-dtype", "fp8")
    assert serve("--rate", "50/s", "--count", "15", *draft, "--json", str(out)) == 0
    assert json.loads(out.read_text())["limits"]["draft"] == 2


def test_a_trace_and_its_rejected_requests(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "run.json"
    trace.write_text("t,in,out\n0,100,10\n0.5,2000,10\n1,50,20\n")
    assert serve("--requests", str(trace), "--columns", "arrival=t,prompt=in,output=out", "--json", str(out)) == 0
    data = json.loads(out.read_text())
    assert data["rejected"] == {"its prompt is longer than the context": 1}
    assert [(each["prompt"], each["output"]) for each in data["requests"]] == [(100, 10), (50, 20)]


RATE = ("--rate", "4/s")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "serve needs requests: either --requests FILE or --rate 4/s, and not both"),
        ((*RATE, "--requests", "x.csv"), "serve needs requests: either --requests FILE or --rate 4/s, and not both"),
        ((*RATE, "--columns", "arrival=t"), "--columns names columns of a trace; it needs --requests FILE"),
        (("--requests", "none.csv"), "none.csv: cannot be read: No such file or directory"),
        ((*RATE, "--count", "0"), "--count 0: must be at least 1"),
        ((*RATE, "--count", "2000000"), "--count 2000000: at most 1,000,000"),
        ((*RATE, "--context", "2000"), "--context 2000: gpt2 has room for 1,024 positions"),
        ((*RATE, "--max-batch", "0"), "--max-batch 0: must be at least 1"),
        ((*RATE, "--blocks", "0"), "--blocks 0: must be at least 1; nothing can be served without a KV block"),
        ((*RATE, "--block-size", "0"), "--block-size 0: must be at least 1"),
        ((*RATE, "--memory-fraction", "1.5"), "--memory-fraction 1.5: must be above 0 and at most 1"),
        ((*RATE, "--quant", "w5"), "unknown quantisation 'w5'; did you mean 'w8'? (known: none, w8, w4)"),
        ((*RATE, "--kv-dtype", "fp9"), "--kv-dtype fp9: unknown; did you mean 'fp8'? (known: fp8, int8)"),
        ((*RATE, "--mode", "compile"), "--mode compile: a served step is eager or a captured graph"),
        ((*RATE, "--link", "5GB/s"), "--link joins two pools; it needs --disaggregate prefill=1,decode=1"),
        (
            (*RATE, "--disaggregate", "prefill=1"),
            "--disaggregate prefill=1: wanted prefill=N,decode=M with at least one chip each",
        ),
        (
            (*RATE, "--disaggregate", "prefill=1,decode=1", "--link", "fast"),
            "--link: 'fast' is not a quantity in B/s (expected the form '3.35 TB/s')",
        ),
        (
            (*RATE, "--disaggregate", "prefill=1,decode=1", "--speculate", "draft=gpt2"),
            "--speculate does not go with --disaggregate",
        ),
        ((*RATE, "--capture", "0,8"), "--capture 0,8: wanted batch sizes of at least 1, such as 1,2,4,8"),
        ((*RATE, "--shared-prefix", "-1"), "--shared-prefix -1: must be at least 0"),
        (
            (*RATE, "--context", "4", "--count", "3"),
            "no request can be served: 3 because its prompt is longer than the context",
        ),
        ((*RATE, "--json", "/nowhere/x.json"), "cannot write /nowhere/x.json: there is no folder /nowhere"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(*arguments) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"


def test_a_model_that_does_not_fit_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    # gpt2: 249 MB of weights; 0.9 x 200 MB = 180 MB
    assert serve("--rate", "4/s", "--set", "memory.hbm.capacity=200MB") == 2
    assert capsys.readouterr().err == (
        "xpusim: the weights of gpt2 do not fit: 249 MB, 68.9 MB more than the 180 MB that may be used of "
        "h200's 200 MB\n"
    )


def test_a_saved_graph_cannot_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "graph.json", "--chip", "h200", "--rate", "4/s"]) == 2
    wanted = "graph.json: a saved graph has one size; serving needs a model that can be traced at many"
    assert capsys.readouterr().err == f"xpusim: {wanted}\n"
