"""Where in the user's program an operator comes from: module path and phase, forward and backward."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from simulator.graph import Phase

_NO_SEQUENCE = 2**63  # nodes that accumulate a gradient count from the other end


class Scopes:
    """Follows which module runs, and finds the module of a backward operator by its autograd node.

    Autograd numbers its nodes in the order in which the forward pass makes them.  The numbers at which the program
    enters or leaves a module are enough to find the module that a node was made in.
    """

    def __init__(self, module: nn.Module) -> None:
        self._paths = {id(child): path for path, child in module.named_modules()}
        self._stack: list[str] = [""]
        self._again = [False]  # of each entry: whether a backward pass was running when it was entered
        self._numbers: list[int] = [-1]
        self._modules: list[str] = [""]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow every module call made inside."""
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            del self._stack[1:], self._again[1:]

    def _enter(self, module: nn.Module, _args: Any) -> None:
        path = self._paths.get(id(module))
        if path is None:
            path = f"{self._stack[-1]}.{type(module).__name__}".lstrip(".")
        self._stack.append(path)
        self._again.append(torch._C._current_autograd_node() is not None)
        self._mark()

    def _leave(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        self._stack.pop()
        self._again.pop()
        self._mark()

    def _mark(self) -> None:
        number = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
        if self._numbers[-1] == number:
            self._modules[-1] = self._stack[-1]
        else:
            self._numbers.append(number)
            self._modules.append(self._stack[-1])

    def where(self) -> tuple[str, Phase]:
        """Module path and phase of the operator that runs now.

        Inside a backward pass gradients are off and no module is entered, except where activation checkpointing runs
        the forward again.  A module may call for a backward pass itself, as one that adds up gradients does.
        """
        node = torch._C._current_autograd_node()
        if node is None:
            return self._stack[-1], Phase.FORWARD
        if torch.is_grad_enabled() or self._again[-1]:
            return self._stack[-1], Phase.RECOMPUTE
        number = node._sequence_nr()
        if number >= _NO_SEQUENCE:
            return "", Phase.BACKWARD
        return self._modules[bisect_right(self._numbers, number) - 1], Phase.BACKWARD
