"""Measures training and encoding beside tiktoken and Hugging Face tokenizers, on the same text and vocabulary."""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from simulator.errors import UsageError
from workloads.tokenizer.corpus import Corpus, python_corpus
from workloads.tokenizer.interop import huggingface_split, to_huggingface, to_tiktoken
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.tokenizer import Tokenizer
from workloads.tokenizer.train import train
from workloads.tokenizer.vocabulary import Vocabulary, gpt2_byte_order

_HF_DOCUMENT = 100_000  # bytes that Hugging Face's tokenizer gets at once: it slows down on longer ones
_REPEATS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Speed:
    """One program on the whole text.

    seconds  on the clock; *cpu* of the process, all its threads.  The best of three, each on its own.
    """

    program: str
    what: str
    megabytes: float
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Megabytes (10^6 bytes) a second of one core."""
        return self.megabytes / self.cpu


@dataclass(frozen=True, slots=True)
class Report:
    """All speeds; *equal* if every program gave the same tokens."""

    corpus: str
    machine: str
    size: int
    split: Split
    rows: tuple[Speed, ...]
    equal: bool

    def data(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        rows = [asdict(row) | {"megabytes_per_cpu_second": row.rate} for row in self.rows]
        return asdict(self) | {"split": str(self.split), "rows": rows}


def bench(size: int = 10_000, split: Split = Split.GPT2, workers: int = 2, others: bool = True) -> Report:
    """Train a vocabulary of *size* on 10 MB, encode them, and let the others do the same.

    Compilation is not counted: everything has run once on a short text before.  UsageError if a package is missing.
    """
    corpus = python_corpus()
    documents = (*corpus.training, *corpus.held_out)
    Tokenizer(train([b"warm up, warm up"], 260, split, workers=2)).encode("warm up")

    def learn() -> Vocabulary:
        return train(documents, size, split, workers=workers, bytes_in_order=gpt2_byte_order())

    megabytes = sum(map(len, documents)) / 1e6
    vocabulary, training = _timed("xpusim", f"train, {workers} workers", megabytes, learn)
    tokenizer, texts = Tokenizer(vocabulary), [document.decode() for document in documents]
    ours, encoding = _timed("xpusim", "encode", megabytes, lambda: [tokenizer.encode(text, "none") for text in texts])
    rows, equal = [training, encoding], True
    if others:
        theirs, same = _others(vocabulary, corpus, texts, ours, megabytes)
        rows, equal = [*rows, *theirs], same
    return Report(corpus.name, _machine(), len(vocabulary), split, tuple(rows), equal)


def _others(
    vocabulary: Vocabulary, corpus: Corpus, texts: list[str], ours: list[list[int]], megabytes: float
) -> tuple[list[Speed], bool]:
    try:
        encoding, hf = to_tiktoken(vocabulary), to_huggingface(vocabulary)
    except ImportError as error:
        raise UsageError(f"the benchmark needs {error.name}: pip install 'xpusim[labs]', or give --alone") from None
    ranked, first = _timed("tiktoken", "encode", megabytes, lambda: [encoding.encode_ordinary(text) for text in texts])
    short = [text for text in texts if len(text) < _HF_DOCUMENT]
    part = sum(len(text.encode()) for text in short) / 1e6
    parted, second = _timed("HF tokenizers", "encode", part, lambda: [hf.encode(text).ids for text in short])
    wanted = [ids for ids, text in zip(ours, texts, strict=True) if len(text) < _HF_DOCUMENT]
    equal = ranked == ours and parted == wanted
    return [first, second, _their_training(vocabulary, corpus)], equal


def _their_training(vocabulary: Vocabulary, corpus: Corpus) -> Speed:
    """Train Hugging Face's on the same documents; it takes all cores that it finds."""
    import tokenizers  # noqa: PLC0415
    from tokenizers import models, pre_tokenizers, trainers  # noqa: PLC0415

    documents = [document.decode() for document in (*corpus.training, *corpus.held_out)]
    found = tokenizers.Tokenizer(models.BPE())
    found.pre_tokenizer = huggingface_split(vocabulary.split)
    trainer = trainers.BpeTrainer(
        vocab_size=len(vocabulary), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    megabytes = sum(len(document.encode()) for document in documents) / 1e6
    return _timed("HF tokenizers", "train", megabytes, lambda: found.train_from_iterator(documents, trainer), 1)[1]


def _timed(program: str, what: str, megabytes: float, run: Callable[[], T], repeats: int = _REPEATS) -> tuple[T, Speed]:
    seconds, cpu = float("inf"), float("inf")
    for _ in range(repeats):
        clock, process = time.perf_counter(), time.process_time()
        result = run()
        seconds = min(seconds, time.perf_counter() - clock)
        cpu = min(cpu, time.process_time() - process)
    return result, Speed(program, what, megabytes, seconds, cpu)


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
