"""Graph passes: what a compiler does to a program before it runs, on the operator graph and without running it.

A pass is a function of a graph and of prices that returns a new graph; the old one stays as it is.  A rewrite is made
if it is legal and if the chip's model says that it is no slower.  FLOPs stay, bytes and kernels never grow, and the
peak memory never grows by fusion.  Four passes do what Inductor does whether that pays or not, so that the kernels are
its own: `decompose` (more kernels and bytes), `recompute` and `inline` (more FLOPs), and `padding`, which trades bytes
for time.  The fusion passes also write the loops that stay alone: a compiler calls no library for them.

A pass of your own is a function under ``@graph_pass``; it has a name from then on, for ``xpusim passes --passes`` and
for `compile_graph`.  This one drops copies that a library would make and whose result is read as it was written:

>>> from simulator.passes import PASSES, graph_pass
>>> from simulator.passes.cleaning import dead
>>> @graph_pass("tidy")
... def tidy(graph, prices):
...     return dead(dead(graph, prices), prices)
>>> "tidy" in PASSES
True
>>> del PASSES["tidy"]

Fusions of pairs are a rule each, for `simulator.passes.fusion.fuse_pairs`: which two loops may meet.  What a kernel
loops over, and which operators can be generated at all, stands in ``spaces.py``.
"""

from simulator.passes.manager import INDUCTOR, PASSES, Compiled, check_passes, compile_graph, graph_pass
from simulator.passes.reports import PassReport, State

__all__ = ["INDUCTOR", "PASSES", "Compiled", "PassReport", "State", "check_passes", "compile_graph", "graph_pass"]
