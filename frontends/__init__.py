"""Programs as operator graphs: a user's PyTorch module runs once, without weights, and is written down.

See the README of this folder for how tracing works and how to add a rule.
"""

from frontends.rules import Call, Work, rule
from frontends.tracing import trace, trace_training_step

__all__ = ["Call", "Work", "rule", "trace", "trace_training_step"]
