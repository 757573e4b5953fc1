"""Lab 5 on chips whose numbers can be worked out on paper."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hw_models import load_chip
from simulator.cli import roofline
from simulator.dtypes import DType
from simulator.errors import OutputError, UsageError
from workloads.gpt import preset
from workloads.gpt.parameters import matmul_parameters
from workloads.roofline.analysis import Analysis, analyse, ridge_points
from workloads.roofline.inference import capacity_batch, crossover_batch
from workloads.roofline.machine import Machine, machine, math_dtype
from workloads.roofline.plot import save_plot
from workloads.roofline.words import capacity_verdict, crossover_verdict, decode_verdict, prefill_verdict, title

EVEN = Machine(peak=100, bandwidth=10, capacity=1000)  # ridge: 10 FLOP a byte


def llama_on_h200(context: int = 512) -> Analysis:
    return analyse(preset("llama-8b"), load_chip("h200"), context=context)


def xpusim(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    roofline.add_parser(parser.add_subparsers())
    options = parser.parse_args(["roofline", *arguments])
    code: int = options.run(options)
    return code


def test_the_slower_resource_decides() -> None:
    assert EVEN.ridge == 10
    assert EVEN.seconds(flops=200, nbytes=10) == 2  # 2 s of arithmetic, 1 s of memory
    assert EVEN.seconds(flops=200, nbytes=30) == 3
    assert EVEN.times(4) == Machine(400, 40, 4000)


def test_the_crossover_is_where_arithmetic_catches_up() -> None:
    # weights 100 B: 10 s. Each sequence: 300 FLOP, 3 s, and 10 B of cache, 1 s. B sequences: 3 B against 10 + B.
    assert crossover_batch(EVEN, weights=100, kv_each=10, flops_each=300) == pytest.approx(5)


def test_no_batch_helps_where_a_sequence_brings_more_traffic_than_arithmetic() -> None:
    assert crossover_batch(EVEN, weights=100, kv_each=30, flops_each=300) is None
    assert crossover_batch(EVEN, weights=100, kv_each=31, flops_each=300) is None


def test_capacity_is_what_the_weights_leave() -> None:
    assert capacity_batch(EVEN, weights=400, kv_each=250) == 2
    assert capacity_batch(EVEN, weights=900, kv_each=250) == 0
    assert capacity_batch(EVEN, weights=1100, kv_each=250) == 0


def test_weights_without_a_mode_of_their_own_are_widened() -> None:
    h200, a100 = load_chip("h200"), load_chip("a100")
    assert math_dtype(h200, DType.FP8) is DType.FP8
    assert math_dtype(a100, DType.FP8) is DType.BF16
    assert math_dtype(h200, DType.INT4) is DType.INT8
    assert machine(a100, DType.FP8).peak == a100.peak(DType.BF16)


def test_ridges_are_peak_over_bandwidth() -> None:
    chip = load_chip("h200")
    assert ridge_points(chip)[DType.BF16] == pytest.approx(989.4e12 / 4.8e12, rel=1e-3)


def test_decode_of_llama_8b_by_hand() -> None:
    found = llama_on_h200(context=512)
    one = found.decode[0]
    # all but the look-up: 8.03 G less 0.53 G elements of two bytes, and 512 positions of 131072 B
    assert one.nbytes == 2 * (8_030_261_248 - 128256 * 4096) + 512 * 131072
    assert one.flops == 2 * matmul_parameters(preset("llama-8b")) + 4 * 32 * 32 * 128 * 512
    assert one.seconds == pytest.approx(one.nbytes / 4.8e12)
    assert not one.compute_bound
    assert found.best is not None
    assert found.best.batch == found.capacity == (141 * 10**9 - 2 * 8_030_261_248) // (512 * 131072)


def test_the_crossover_batch_is_the_first_that_is_compute_bound() -> None:
    found = llama_on_h200(context=512)
    assert found.crossover is not None
    batch = int(found.crossover)
    around = analyse(preset("llama-8b"), load_chip("h200"), context=512, batches=(batch, batch + 1)).decode
    assert {point.batch: point.bound for point in around if point.batch >= batch} == {
        batch: "bandwidth",
        batch + 1: "compute",
    }


def test_the_context_limit_is_the_first_without_a_crossover() -> None:
    limit = llama_on_h200().crossover_limit
    assert limit is not None
    assert llama_on_h200(int(limit)).crossover is not None
    assert llama_on_h200(int(limit) + 1).crossover is None


def test_the_prefill_turn_is_the_first_compute_bound_prompt() -> None:
    turn = llama_on_h200().prefill_turn
    assert turn is not None
    prompts = {s: analyse(preset("llama-8b"), load_chip("h200"), seq=s).prefill.bound for s in (turn - 1, turn)}
    assert prompts == {turn - 1: "bandwidth", turn: "compute"}


def test_verdicts_say_what_and_by_how_much() -> None:
    found = llama_on_h200(context=1024)
    assert prefill_verdict(found) == (
        "compute bound: 479 FLOP/B against a ridge of 206; one prompt is compute bound from 222 tokens on"
    )
    assert decode_verdict(found) == (
        "bandwidth bound at batch 1: 1.03 FLOP/B, 201 times below the ridge; arithmetic is busy 0.50% of the step"
    )
    assert crossover_verdict(found) == (
        "none at 1,024 positions: one more sequence keeps memory busy longer (its keys and values) than arithmetic;"
        " below 566 positions there is one"
    )
    assert capacity_verdict(found) == ("930 sequences of 1,024 positions: 141 GB less 16.1 GB of weights, 134 MB each")
    assert title(found) == (
        "llama-8b on h200, bf16: prefill is compute bound,\n"
        "decode at 1,024 positions is bandwidth bound at any batch; 930 sequences fit"
    )


def test_a_model_that_does_not_fit_says_by_how_much() -> None:
    found = analyse(preset("llama-70b"), load_chip("h100"))
    assert found.capacity == 0
    assert found.best is None
    assert capacity_verdict(found) == "does not fit: weights of 141 GB in 80 GB, 61.1 GB too much; needs 2 chips"
    assert title(found).endswith("and does not fit: 2 chips would hold its weights")


def test_a_crossover_that_does_not_fit_says_so() -> None:
    assert crossover_verdict(llama_on_h200(512)) == (
        "2,142 sequences at 512 positions, but only 1,861 fit: memory is full before arithmetic is"
    )


def test_a_narrower_cache_helps_decode() -> None:
    chip, config = load_chip("h200"), preset("llama-8b")
    narrow = analyse(config, chip, context=4096, kv_dtype=DType.FP8)
    assert 2 * narrow.kv_each == analyse(config, chip, context=4096).kv_each
    assert narrow.weights == 2 * 8_030_261_248


def test_windows_bound_the_traffic_but_the_cache_still_holds_all() -> None:
    config = replace(preset("llama-1b"), window=(128,))
    found = analyse(config, load_chip("h200"), context=4096)
    assert found.crossover_limit is None
    assert found.decode[0].nbytes == 2 * 1_235_814_400 + 128 * 32768
    assert found.kv_each == 4096 * 32768


def test_longer_than_the_models_context_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^gpt2: context is 2048, longer than the model's context 1024$"):
        analyse(preset("gpt2"), load_chip("h200"), context=2048)


def test_the_command_prints_writes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, picture = tmp_path / "r.json", tmp_path / "r.png"
    assert xpusim("llama-8b", "--chip", "h200", "--context", "512", "--json", str(file), "--plot", str(picture)) == 0
    printed = capsys.readouterr().out
    for label in ("ridge", "prefill", "decode", "ceiling", "crossover", "capacity"):
        assert f"\n{label} " in printed
    written = json.loads(file.read_text())
    assert (written["crossover_batch"], written["capacity_batch"]) == (2142, 1861)
    assert written["decode"][0]["bound"] == "bandwidth"
    assert picture.stat().st_size > 20_000


def test_overrides_move_the_ridge(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    xpusim("gpt2", "--chip", "h200", "--set", "memory.hbm.bandwidth=9.6TB/s", "--json", str(file))
    assert json.loads(file.read_text())["ridge_flop_per_byte"]["bf16"] == pytest.approx(103, rel=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt2", "--dtype", "bf17"], "--dtype bf17: unknown; did you mean 'bf16'? (known: "),
        (["gpt2", "--kv-dtype", "x"], "--kv-dtype x: unknown (known: "),
        (["gpt2", "--context", "0"], "--context 0: must be at least 1"),
        (["gpt2", "--chips", "0"], "--chips 0: must be at least 1"),
        (["gpt3"], "unknown model 'gpt3'; did you mean 'gpt2'? (known: gpt2, "),
        (["a.py:f", "--plot", "x.png"], "--plot: only for a preset; "),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        xpusim(*arguments, "--chip", "h200")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"^cannot write .*: No such file or directory$"):
        save_plot(llama_on_h200(), tmp_path / "missing" / "r.png")
    with pytest.raises(OutputError, match=r"^cannot write .*r\.xyz: Format 'xyz' is not supported"):
        save_plot(llama_on_h200(), tmp_path / "r.xyz")
