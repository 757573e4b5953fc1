"""Programs as operator graphs: a user's PyTorch module runs once, without weights, and is written down.

See the README of this folder for how tracing works and how to add a rule.
"""

from frontends.factory import building, load_factory
from frontends.hf import hf_arguments, load_hf
from frontends.rules import Call, Work, rule
from frontends.tracing import trace, trace_training_step

__all__ = [
    "Call",
    "Work",
    "building",
    "hf_arguments",
    "load_factory",
    "load_hf",
    "rule",
    "trace",
    "trace_training_step",
]
