"""Everything that this project raises on purpose.

* XpuError              catch this one to catch them all; the command line turns it into one line and exit code 2
  * SpecError           a hardware description, an override or another input file is wrong
  * GraphError          an operator graph breaks one of its own rules, or a graph file cannot be read
  * TraceError          a frontend cannot turn the user's program into an operator graph
  * UsageError          an argument or option makes no sense: unknown name, negative size, wrong combination
  * OutputError         a result cannot be written where it was asked for
  * DeadlockError       a simulation stopped before all its work was done
"""

from collections.abc import Iterable


class XpuError(Exception):
    """Base of every error that a user of this project can cause."""


class SpecError(XpuError):
    """A hardware description, an override or another input file is wrong."""


class GraphError(XpuError):
    """An operator graph breaks one of its own rules."""


class TraceError(XpuError):
    """A frontend cannot turn the user's program into an operator graph."""


class UsageError(XpuError):
    """An argument or option makes no sense."""


class OutputError(XpuError):
    """A result cannot be written where it was asked for."""


class DeadlockError(XpuError):
    """A simulation stopped before all its work was done."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name closest to *name*, or nothing if none is close.

    >>> nearest("h20", ["h200", "a100"])
    "; did you mean 'h200'?"
    >>> nearest("zzz", ["h200", "a100"])
    ''
    """
    import difflib  # noqa: PLC0415  a hundredth of a second that only a wrong name costs

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{found[0]}'?" if found else ""
