"""A small MLIR dialect on xDSL: tensors of fp32, seven operations, and the way down to loops that run.

text --parse--> lab --canonicalise--> lab --to_linalg--> linalg on memrefs --to_loops--> scf, arith, memref
                 ^                      \\________________________ run, at each of the levels ________/
PyTorch --from_torch--^
"""

from simulator.errors import UsageError

try:
    import xdsl  # noqa: F401
except ImportError:
    raise UsageError("the dialect needs xDSL: pip install 'xpusim[labs]'") from None

from workloads.compiler.dialect.execute import run
from workloads.compiler.dialect.lower import to_linalg, to_loops
from workloads.compiler.dialect.ops import LAB
from workloads.compiler.dialect.rewrites import canonicalise
from workloads.compiler.dialect.text import parse, show
from workloads.compiler.dialect.torch_import import from_torch

__all__ = ["LAB", "canonicalise", "from_torch", "parse", "run", "show", "to_linalg", "to_loops"]
