"""Lab 2: the cases whose text is free to ship, and those that need none.

L02-X1 and X2 (minbpe's sample article) and the other files of X3 are other people's texts and are not here.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from hw_models import load_chip
from simulator.dtypes import DType
from tests.workloads.lab_cases import cases
from workloads.roofline.machine import machine
from workloads.tokenizer.files import load
from workloads.tokenizer.tokenizer import Tokenizer

CASES = cases("L02-X3") | cases("L02-X6")
GPT2 = Path(__file__).with_name("test_tokenizer_gpt2_excerpt.bpe")

# Lincoln's address at Gettysburg, 1863, to the byte as address.txt of the case.
ADDRESS = """\
Four score and seven years ago our fathers brought forth, on this continent, a new nation, conceived in Liberty, and \
dedicated to the proposition that all men are created equal.
Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can \
long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a \
final resting place for those who here gave their lives that that nation might live. It is altogether fitting and \
proper that we should do this.
But, in a larger sense, we can not dedicate—we can not consecrate—we can not hallow—this ground. The brave men, living \
and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world will little \
note, nor long remember what we say here, but it can never forget what they did here. It is for us the living, rather, \
to be dedicated here to the unfinished work which they who fought here have thus far so nobly advanced. It is rather \
for us to be here dedicated to the great task remaining before us—that from these honored dead we take increased \
devotion to that cause for which they gave the last full measure of devotion—that we here highly resolve that these \
dead shall not have died in vain—that this nation, under God, shall have a new birth of freedom—and that government of \
the people, by the people, for the people, shall not perish from the earth.
"""
ADDRESS_SHA256 = "fc1f209025d3181137b8953cfeb559ab186782d48b93182eac2b6401816c1df4"


def gpt2() -> Tokenizer:
    """GPT-2's merges, as far as the texts here can use them, and its special token at its published id."""
    return Tokenizer(replace(load(GPT2), special={"<|endoftext|>": 50256}))


def test_x3_tokens_of_the_address() -> None:
    assert hashlib.sha256(ADDRESS.encode()).hexdigest() == ADDRESS_SHA256
    assert len(gpt2().encode(ADDRESS)) == CASES["L02-X3"].expected[0]


def test_x5_special_tokens() -> None:
    ids = gpt2().encode("Héllò hôw <|endoftext|><|endoftext|> are ü? 🙃<|endoftext|>", "all")
    assert (len(ids), ids[-1], ids.count(50256)) == (19, 50256, 3)


def test_x6_time_of_the_head_at_4_bits() -> None:
    # A group of 128 weights has 128 x 4 bits, a scale and an offset of 16 bits each: 206.6 MB.  The M4 Pro has
    # 273 GB/s; of that, as much as STREAM gets on the M4: 100 of 120 GB/s (source in apple-m4.yaml).
    chip = load_chip("apple-m4", ["memory.lpddr.bandwidth=273 GB/s"])
    weights = 151936 * 2560
    nbytes = weights / 2 + weights / 128 * 4
    at = machine(chip, DType.INT4)
    seconds = replace(at, bandwidth=at.bandwidth * 100 / 120).seconds(2 * weights, nbytes)
    case = CASES["L02-X6"]
    assert round(nbytes / 1e6, 1) == 206.6
    assert case.tolerances == [0.15]
    case.check([seconds * 1e6])
