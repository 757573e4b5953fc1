"""Programs as operator graphs: a user's PyTorch module runs once, without weights, and is written down.

See the README of this folder for how tracing works and how to add a rule.
"""

from frontends.distributed import mesh_arguments, parse_mesh, trace_ranks, world
from frontends.factory import building, load_factory
from frontends.hf import hf_arguments, load_hf
from frontends.matching import check_ranks
from frontends.rules import Call, Work, rule
from frontends.tracing import trace, trace_step, trace_training_step

__all__ = [
    "Call",
    "Work",
    "building",
    "check_ranks",
    "hf_arguments",
    "load_factory",
    "load_hf",
    "mesh_arguments",
    "parse_mesh",
    "rule",
    "trace",
    "trace_ranks",
    "trace_step",
    "trace_training_step",
    "world",
]
