"""``python -m workloads.autograd train`` learns the digits; ``draw FILE`` draws the graph of one loss."""

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from simulator.errors import XpuError
from workloads.autograd.digits import load_digits
from workloads.autograd.draw import draw
from workloads.autograd.functional import cross_entropy
from workloads.autograd.modules import MLP
from workloads.autograd.optimizers import AdamW
from workloads.autograd.tensor import Tensor
from workloads.autograd.training import train


def parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.autograd", description="Automatic differentiation on numpy")
    commands = top.add_subparsers(dest="command", required=True)
    learn = commands.add_parser("train", help="train a two-layer network on 1,797 handwritten digits")
    learn.add_argument("--hidden", type=int, default=128, metavar="N", help="units between the layers (128)")
    learn.add_argument("--epochs", type=int, default=15, metavar="N", help="passes over the training part (15)")
    learn.add_argument("--batch", type=int, default=32, metavar="B", help="images a step (32)")
    learn.add_argument("--rate", type=float, default=3e-3, metavar="R", help="learning rate of AdamW (0.003)")
    learn.add_argument("--seed", type=int, default=0, metavar="S", help="of weights, split and order (0)")
    learn.set_defaults(run=run_train)
    picture = commands.add_parser("draw", help="draw the graph of a loss of that network")
    picture.add_argument("file", metavar="FILE", help="ends in .png, .svg or .pdf")
    picture.set_defaults(run=run_draw)
    return top


def run_train(options: argparse.Namespace, console: Console) -> None:
    """Print one line a pass."""
    model = MLP((64, options.hidden, 10), np.random.default_rng(options.seed)).cast(np.float32)
    optimizer = AdamW(model.parameters(), options.rate)
    started = time.perf_counter()
    for epoch in train(model, optimizer, load_digits(options.seed), options.epochs, options.batch, options.seed):
        took = time.perf_counter() - started
        console.print(f"step {epoch.steps:5}  loss {epoch.loss:.4f}  right {epoch.accuracy:6.1%}  {took:5.2f} s")


def run_draw(options: argparse.Namespace, console: Console) -> None:
    """Draw the first loss, before any step."""
    model, data = MLP((64, 128, 10), np.random.default_rng(0)), load_digits()
    model.name_parts()
    draw(cross_entropy(model(Tensor(data.test)), data.test_labels), options.file)
    console.print(f"drawn: {options.file}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for bad input and for a loss that is not a number."""
    options = parser().parse_args(arguments)
    try:
        options.run(options, Console(highlight=False))
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
