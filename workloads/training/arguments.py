"""The fields of a run as options of the command line."""

import argparse
from dataclasses import fields
from typing import Any

from workloads.training.config import Run, override


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add one option for each field of `Run`; those that are not given keep its defaults."""
    group = parser.add_argument_group("the run")
    for each in fields(Run):
        name = f"--{each.name.replace('_', '-')}"
        text = f"{each.metadata['help']} ({each.default})".replace("%", "%%")
        if each.type is bool:
            group.add_argument(name, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            kind: Any = each.type
            group.add_argument(name, type=kind, metavar=kind.__name__.upper(), help=text)


def run_of(options: argparse.Namespace) -> Run:
    """Return the run that *options* describe."""
    return override(Run(), {each.name: getattr(options, each.name) for each in fields(Run)})
