"""One fusion rule from end to end: the rule on the operator graph, its kernel, the check, the measurement.

>>> import torch
>>> from workloads.compiler.fusion import SwiGLU, fuse
>>> args = [torch.randn(3, 5) for _ in range(3)]
>>> kernel = fuse(SwiGLU(), *args)
>>> torch.allclose(kernel(*args), SwiGLU()(*args), atol=1e-5)
True
"""

from simulator.errors import UsageError

try:
    import numba  # noqa: F401
except ImportError:
    raise UsageError("the fused kernels need numba: pip install 'xpusim[labs]'") from None

from workloads.compiler.fusion.chain import Chain
from workloads.compiler.fusion.examples import SwiGLU
from workloads.compiler.fusion.fused import Fused, fuse
from workloads.compiler.fusion.rule import chains

__all__ = ["Chain", "Fused", "SwiGLU", "chains", "fuse"]
