"""Core of xpusim: operator graph, hardware classes, event engine and results.  Loads no torch and no pyplot.

The names below are imported when they are first used, so that ``xpusim --help`` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.graph import OperatorGraph
    from simulator.graph_io import load_graph, save_graph
    from simulator.result import Result
    from simulator.simulation import simulate

__all__ = ["OperatorGraph", "Result", "load_graph", "save_graph", "simulate"]

_HOME = {
    "OperatorGraph": "graph",
    "Result": "result",
    "load_graph": "graph_io",
    "save_graph": "graph_io",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_HOME[name]}"), name)
