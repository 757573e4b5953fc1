"""Lab 8: attention whose scores never leave the chip, in Triton, as a torch operator that `frontends.trace` knows.

The names below are imported when they are first used, so that importing the package loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.flash_attention.traced import attention, attention_with_logsum

__all__ = ["attention", "attention_with_logsum"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'workloads.flash_attention' has no attribute {name!r}")
    return getattr(import_module("workloads.flash_attention.traced"), name)
