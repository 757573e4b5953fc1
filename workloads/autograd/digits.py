"""1,797 handwritten digits of 8 x 8 pixels, which lie beside this file; their source stands in data/README.md."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads.autograd.state import Array, Integers

_FILE = Path(__file__).parent / "data" / "digits.csv.gz"
_DARKEST = 16


@dataclass(frozen=True, slots=True)
class Digits:
    """Images [n, 64] from 0 to 1 and what they show; the test part, a fifth, is never trained on."""

    train: Array
    train_labels: Integers
    test: Array
    test_labels: Integers


def load_digits(seed: int = 0) -> Digits:
    """Return the digits as float32 in an order that *seed* decides, the last fifth for the test."""
    table = np.loadtxt(_FILE, delimiter=",", dtype=np.int64)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    images, labels = (table[:, :-1] / _DARKEST).astype(np.float32), table[:, -1]
    cut = len(table) * 4 // 5
    return Digits(images[:cut], labels[:cut], images[cut:], labels[cut:])
