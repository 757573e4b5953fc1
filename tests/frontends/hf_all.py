"""Traces every causal language model of transformers from its configuration and prints a table; run by hand.

python tests/frontends/hf_all.py            all of them, small where the default is large
python tests/frontends/hf_all.py llama gpt2 these only
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from frontends import hf_arguments, load_hf, trace, trace_training_step
from frontends.hf import known_types
from simulator.errors import XpuError
from simulator.graph import OperatorGraph, OpKind

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")


def candidates(model_type: str) -> Iterator[Any]:
    """Yield the model with 2 layers, then with 8 (hybrids need one of each kind), then with its default number."""
    for count in (2, 8):
        for key in LAYERS:
            try:
                yield load_hf(model_type, {key: count})
            except XpuError:
                continue
            break
    yield load_hf(model_type)


def traced(module: Any, phase: str) -> OperatorGraph:
    """Return the graph of one phase with batch 2, 32 tokens, context 64."""
    args, kwargs = hf_arguments(module, phase, 2, 32, 64)
    step = trace_training_step if phase == "train" else trace
    return step(module, args, kwargs, dtype="bf16")


def row(module: Any) -> tuple[bool, str]:
    """Return whether all three phases were traced, and what the table says about them."""
    cells, good = [], True
    for phase in ("prefill", "decode", "train"):
        try:
            graph = traced(module, phase)
        except Exception as error:
            good = False
            cells.append(f"{phase}: {type(error).__name__} {str(error)[:250]}")
        else:
            total = sum(op.nbytes for op in graph) or 1
            other = sum(op.nbytes for op in graph if op.kind is OpKind.OTHER) / total
            names = f" ({other:.2%} uncovered: {', '.join(graph.uncovered)})" if graph.uncovered else ""
            cells.append(f"{len(graph):5} ops{names}")
    return good, "  ".join(cells)


def report(model_type: str) -> tuple[bool, str]:
    """Return the row of the first candidate that works, or of the last one."""
    start, good, line = time.perf_counter(), False, ""
    try:
        for module in candidates(model_type):
            good, line = row(module)
            if good:
                break
    except Exception as error:
        line = line or f"not built: {str(error)[:200]}"
    return good, f"{model_type:24} {time.perf_counter() - start:5.2f} s  {line}"


def main() -> None:
    """Print the table."""
    names = sys.argv[1:] or known_types()
    done = 0
    for name in names:
        good, line = report(name)
        done += good
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{done} of {len(names)} traced in prefill, decode and training\n")


if __name__ == "__main__":
    main()
