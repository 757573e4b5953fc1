"""What a vocabulary costs: worked out by hand on a toy, then as properties of the whole sweep and of the lab."""

from dataclasses import replace
from typing import Any

import pytest

from hw_models import load_chip
from simulator.errors import UsageError
from simulator.variants import Resource
from workloads.gpt import Config, preset
from workloads.tokenizer import lab
from workloads.tokenizer.compression import FINE, SIZES, Curve, Law, fit, python_curve
from workloads.tokenizer.corpus import python_corpus
from workloads.tokenizer.cost import Use, best, costs, near, optimum, shown_costs
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.sweep import as_data, chips_with

TOY = Config(
    name="toy", source="made up for the test", layers=1, width=8, heads=1, kv_heads=1, head_dim=8, ffn=16, vocab=512,
    context=64, tied=True,
)  # fmt: skip
HALVES = Curve(
    corpus="made up", split=Split.GPT2, largest=1024, measured={512: 0.5, 1024: 0.25}, characters=1.0,
    law=Law(floor=0.0, scale=256.0, power=1.0, fitted_to=1024, checked_at=1024, error=0.0),
)  # fmt: skip


def test_per_character_by_hand() -> None:
    # bf16, 16 characters: 8 tokens of a vocabulary of 512, 4 of 1,024.  A step makes one token: 2 and 4 characters.
    small, large = costs(TOY, load_chip("h200"), HALVES, Use(characters=16), [512, 1024])
    assert (small.embedding, large.embedding) == (512 * 8 * 2, 1024 * 8 * 2)  # tied: one table
    assert (small.head_flops, large.head_flops) == (2 * 512 * 8 / 2, 2 * 1024 * 8 / 4)
    # Everything but the head of 2 (8 V + 8 + V) bytes and the 2 x 2 x 8 bytes of each token's keys and values:
    rest = [each.nbytes * per - 2 * (9 * each.size + 8) for each, per in ((small, 2), (large, 4))]
    assert rest[0] - rest[1] == (8 - 4) * 32
    # Weights: embedding, Q K V O of 4 x 64, three of 128, three gains of 8; cache of 32 bytes a token.
    assert small.resident == 2 * (512 * 8 + 256 + 384 + 24) + 8 * 32


def test_an_untied_head_is_a_second_table() -> None:
    (tied,) = costs(TOY, load_chip("h200"), HALVES, Use(characters=16), [512])
    (untied,) = costs(replace(TOY, tied=False), load_chip("h200"), HALVES, Use(characters=16), [512])
    assert untied.embedding == 2 * tied.embedding
    assert untied.nbytes == tied.nbytes


def test_beyond_what_was_measured_the_law_goes_on() -> None:
    # 0.25 at 1,024; the law halves with each doubling.
    assert (HALVES.tokens_per_byte(2048), HALVES.is_measured(2048)) == (0.125, False)
    assert (HALVES.tokens_per_byte(1024), HALVES.is_measured(1024)) == (0.25, True)


def test_the_fit_finds_a_law_that_is_there() -> None:
    law = fit({size: 0.2 + 9 * size**-0.6 for size in FINE})
    assert (law.floor, law.scale, law.power) == pytest.approx((0.2, 9, 0.6), rel=1e-4)
    assert (law.fitted_to, law.checked_at, abs(law.error) < 1e-4) == (8192, 262144, True)


def test_an_optimum_and_what_is_as_good() -> None:
    found = costs(TOY, load_chip("h200"), HALVES, Use(characters=16), [512, 1024])
    least = best(found)
    assert least.seconds == min(cost.seconds for cost in found)
    assert near(found, least)[0] <= least.size <= near(found, least)[1]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (Use(characters=1000), "toy: 1,000 characters are 500 tokens of a vocabulary of 512, "
                               "more than the model's context of 64"),
        (Use(batch=0), "batch is 0, needs at least 1"),
        (Use(characters=0), "characters is 0, needs at least 1"),
    ],
)  # fmt: skip
def test_uses_that_make_no_sense(use: Use, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        costs(TOY, load_chip("h200"), HALVES, use, [512])
    assert str(caught.value) == message


def test_the_corpus_is_cut_at_its_limit_and_the_same_each_time() -> None:
    corpus = python_corpus(50_000)
    assert sum(map(len, (*corpus.training, *corpus.held_out))) == 50_000
    assert corpus == python_corpus.__wrapped__(50_000)


@pytest.fixture(scope="module")
def curve() -> Curve:
    return python_curve(Split.CL100K, FINE, 1_000_000)


def test_more_tokens_make_a_text_shorter(curve: Curve) -> None:
    lengths = [curve.tokens_per_byte(size) for size in FINE]
    assert lengths == sorted(lengths, reverse=True)
    assert 0 < curve.law.floor < lengths[-1]


def test_larger_models_and_batches_want_larger_vocabularies(curve: Curve) -> None:
    chip = load_chip("h200")
    sizes = [
        optimum(preset(name), chip, curve, Use(characters=1000))[0].size for name in ("gpt2", "llama-1b", "llama-8b")
    ]
    assert sizes == sorted(sizes)
    alone, many = (optimum(preset("gpt2"), chip, curve, Use(batch=batch, characters=1000))[0].size for batch in (1, 64))
    assert alone < many


def test_capacity_rules_out_what_does_not_fit(curve: Curve) -> None:
    # llama-70b has 136.9 GB of weights in its blocks, and 65,536 tokens add two tables of 1.07 GB to them.
    chip = load_chip("h200", ["memory.hbm.capacity=140 GB"])
    found = shown_costs(preset("llama-70b"), chip, curve, Use(characters=1000))
    fits = {cost.size: cost.fits for cost in found}
    assert (fits[32768], fits[65536], fits[131072], fits[262144]) == (True, True, False, False)
    assert [cost.bound for cost in found if not cost.fits][-1] is Resource.CAPACITY
    assert best(found).fits


def test_every_chip_has_its_optimum(curve: Curve) -> None:
    for chip in chips_with(Use().dtype):
        (row,) = as_data([optimum(preset("gpt2"), chip, curve, Use(characters=1000))[0]])
        assert row["size"] in FINE
        assert row["seconds"] > 0


def test_a_chip_of_the_user_stands_first() -> None:
    mine = replace(load_chip("h200"), name="mine")
    assert chips_with(Use().dtype, mine)[0] is mine
    assert [chip.name for chip in chips_with(Use().dtype, load_chip("h200"))].count("h200") == 1


def test_the_lab(curve: Curve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "python_curve", lambda split: curve)
    found = lab.answer(load_chip("h200"))
    data: dict[str, Any] = dict(found.data)
    assert found.bound is Resource.BANDWIDTH
    assert {row["size"] for row in data["sizes"]} >= set(SIZES)
    assert all(len(row) == len(table.columns) for table in found.tables for row in table.rows)
    assert f"{data['chips']['h200']['decode, batch 1']['size']:,} tokens" in found.sentence
