"""SGD with momentum and AdamW: one kernel over all parameters that have a gradient."""

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.errors import UsageError
from simulator.graph import Phase
from workloads.autograd import kernels
from workloads.autograd.state import Array, working_on
from workloads.autograd.tensor import Tensor


class Optimizer:
    """Changes *parameters* by their gradients; *rate* is the learning rate."""

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        if not parameters:
            raise UsageError("an optimizer needs at least one parameter")
        if not rate > 0:
            raise UsageError(f"learning rate {rate}: must be above 0")
        self.parameters = list(parameters)
        self.rate = rate

    def zero_grad(self) -> None:
        """Forget the gradients: otherwise the next backward adds to them."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        trained = [i for i, each in enumerate(self.parameters) if each.grad is not None]
        if not trained:
            raise UsageError("no parameter has a gradient: call backward before step")
        with working_on(Phase.OPTIMIZER):
            self._update(trained)

    def _update(self, trained: list[int]) -> None:
        raise NotImplementedError

    def states(self) -> Mapping[str, list[Array]]:
        """Return what is kept from step to step, by name, in the order of the parameters."""
        return {}

    def _of(self, trained: list[int]) -> tuple[list[Array], list[Array]]:
        chosen = [self.parameters[i] for i in trained]
        return [each.data for each in chosen], [each.grad for each in chosen if each.grad is not None]


class SGD(Optimizer):
    """v = momentum v + gradient; p = p - rate v.  Without momentum nothing is kept."""

    def __init__(self, parameters: Sequence[Tensor], rate: float, momentum: float = 0.0, decay: float = 0.0) -> None:
        super().__init__(parameters, rate)
        self.momentum, self.decay = momentum, decay
        self._velocity = [np.zeros_like(each.data) for each in self.parameters] if momentum else []

    def _update(self, trained: list[int]) -> None:
        parameters, gradients = self._of(trained)
        velocities = [self._velocity[i] for i in trained] if self._velocity else []
        kernels.sgd(parameters, velocities, gradients, self.rate, self.momentum, self.decay)

    def states(self) -> Mapping[str, list[Array]]:
        return {"momentum": self._velocity} if self._velocity else {}


class AdamW(Optimizer):
    """Adam with weight decay on the parameter itself, not in the gradient; keeps two arrays a parameter."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, rate)
        self.betas, self.epsilon, self.decay, self.steps = betas, epsilon, decay, 0
        self._first = [np.zeros_like(each.data) for each in self.parameters]
        self._second = [np.zeros_like(each.data) for each in self.parameters]

    def _update(self, trained: list[int]) -> None:
        self.steps += 1
        parameters, gradients = self._of(trained)
        kernels.adamw(
            parameters, [self._first[i] for i in trained], [self._second[i] for i in trained], gradients,
            self.rate, self.betas, self.epsilon, self.decay, self.steps,
        )  # fmt: skip

    def states(self) -> Mapping[str, list[Array]]:
        return {"exp_avg": self._first, "exp_avg_sq": self._second}
