"""A parallel plan: how many ways the work of one model is divided, and which rank stands where.

Ranks are numbered as Megatron numbers them: tensor parallel innermost, so that its ranks share a node, then data
parallel, then pipeline.  Expert parallelism lives inside data parallelism: neighbours in it hold different experts.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from simulator.errors import UsageError, nearest

Recompute = Literal["none", "selective", "full"]
Precision = Literal["same", "mixed"]
_CHOICES = {
    "schedule": ("1f1b", "gpipe", "interleaved"),
    "recompute": ("none", "selective", "full"),
    "precision": ("same", "mixed"),
}
_SIZES = ("dp", "tp", "pp", "ep", "microbatch", "interleave")


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model decides whether a plan divides it; 0 where it has none or it is not known."""

    layers: int
    heads: int = 0
    kv_heads: int = 0
    experts: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Degrees of parallelism, and what is kept, moved and done again.

    dp, tp, pp  replicas of the model, shares of each matrix, and pipeline stages; *ep* shares of the experts, among
                the replicas.
    sp          sequence parallelism: norms and residuals on 1/tp of the tokens.
    zero        0: all-reduced gradients; 1: optimizer divided over dp; 2: gradients too; 3: weights too.
    microbatch  sequences of one microbatch on one replica.
    interleave  chunks of layers on each pipeline stage.
    recompute   activations done again in the backward pass: none, attention's core, or whole layers.
    precision   ``same``: gradients and states as traced; ``mixed``: bf16 weights with fp32 gradients, fp32 master
                weights and moments, 18 bytes a parameter.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    sp: bool = False
    zero: int = 0
    microbatch: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    recompute: Recompute = "none"
    precision: Precision = "same"

    def __post_init__(self) -> None:
        """Refuse what no model could run; UsageError names all faults at once."""
        _raise(str(self), self._faults())

    def __str__(self) -> str:
        """The degrees, as `parse_plan` reads them."""
        given = [f"dp={self.dp}", f"tp={self.tp}", f"pp={self.pp}", f"ep={self.ep}"]
        return ",".join([*given, "sp"] if self.sp else given)

    @property
    def world(self) -> int:
        """Ranks.

        >>> parse_plan("dp=4,tp=8,pp=2").world
        64
        """
        return self.dp * self.tp * self.pp

    @property
    def chunks(self) -> int:
        """Stages that a microbatch passes through: pp x interleave."""
        return self.pp * self.interleave

    def ranks_of(self, name: str, rank: int = 0) -> tuple[int, ...]:
        """Return the ranks that share *name* (tp, dp, ep or pp) with *rank*, in order.

        >>> parse_plan("dp=2,tp=2,pp=2").ranks_of("dp", 5)
        (5, 7)
        """
        stride = {"tp": 1, "dp": self.tp, "ep": self.tp, "pp": self.tp * self.dp}.get(name)
        if stride is None:
            raise UsageError(f"unknown group {name!r}{nearest(name, ('tp', 'dp', 'ep', 'pp'))} (known: tp, dp, ep, pp)")
        if not 0 <= rank < self.world:
            raise UsageError(f"rank {rank} lies outside {self}, which has ranks 0 to {self.world - 1}")
        size = int(getattr(self, name))
        first = rank - rank // stride % size * stride
        return tuple(first + each * stride for each in range(size))

    def expert_data_ranks(self, rank: int = 0) -> tuple[int, ...]:
        """Return the ranks that hold the same experts as *rank*: what the gradients of experts are reduced over."""
        stride = self.tp * self.ep
        inside = rank // self.tp % self.dp
        first = rank - inside // self.ep * stride
        return tuple(first + each * stride for each in range(self.dp // self.ep))

    def check(self, model: Shape, *, chips: int | None = None, global_batch: int | None = None) -> None:
        """Raise UsageError with all faults at once if the plan does not divide *model*, *chips* or *global_batch*."""
        faults = [*self._faults_of(model)]
        if chips is not None and self.world != chips:
            faults.append(f"dp x tp x pp = {self.dp} x {self.tp} x {self.pp} = {self.world} ranks on {chips} chips")
        each = self.dp * self.microbatch
        if global_batch is not None and global_batch % each:
            faults.append(
                f"a global batch of {global_batch} is not divisible by dp x microbatch = "
                f"{self.dp} x {self.microbatch} = {each}"
            )
        _raise(str(self), faults)

    def _faults(self) -> list[str]:
        faults = [f"{name} is {getattr(self, name)}, needs at least 1" for name in _SIZES if getattr(self, name) < 1]
        faults += [
            f"{name} is {value!r}{nearest(value, known)} (known: {', '.join(known)})"
            for name, known in _CHOICES.items()
            if (value := str(getattr(self, name))) not in known
        ]
        if self.zero not in range(4):
            faults.append(f"zero is {self.zero}; the stages are 0 to 3")
        if faults:
            return faults
        if self.zero and self.dp == 1:
            faults.append(f"zero={self.zero} divides over dp, which is 1")
        if self.sp and self.tp == 1:
            faults.append("sp divides the sequence over tp, which is 1")
        if self.dp % self.ep:
            faults.append(f"ep={self.ep} takes its ranks from dp={self.dp} and does not divide it")
        if self.interleave > 1 and self.schedule != "interleaved":
            faults.append(f"interleave={self.interleave} needs schedule=interleaved, not {self.schedule}")
        if self.schedule == "interleaved" and (self.interleave == 1 or self.pp == 1):
            faults.append("schedule=interleaved needs interleave and pp above 1")
        return faults

    def _faults_of(self, model: Shape) -> list[str]:
        faults = []
        if model.heads % self.tp:
            faults.append(f"tp={self.tp} does not divide {model.heads} attention heads")
        if model.kv_heads and model.kv_heads % self.tp and self.tp % model.kv_heads:
            faults.append(f"tp={self.tp} and {model.kv_heads} key/value heads: neither divides the other")
        if self.pp > 1 and not model.layers:
            faults.append(f"pp={self.pp}, but no layers are repeated in the model")
        elif self.pp > max(1, model.layers):
            faults.append(f"pp={self.pp} stages for {model.layers} layers")
        elif self.chunks > max(1, model.layers):
            faults.append(f"pp x interleave = {self.pp} x {self.interleave} = {self.chunks} for {model.layers} layers")
        if self.ep > 1 and not model.experts:
            faults.append(f"ep={self.ep}, but the model has no experts")
        elif self.ep > 1 and model.experts % self.ep:
            faults.append(f"ep={self.ep} does not divide {model.experts} experts")
        if self.sp and model.seq % self.tp:
            faults.append(f"sp: tp={self.tp} does not divide a sequence of {model.seq}")
        return faults


def _raise(plan: str, faults: list[str]) -> None:
    if faults:
        raise UsageError(f"plan {plan}: {'; '.join(faults)}")


def parse_plan(text: str, **options: Any) -> Plan:
    """Return the plan that *text* gives the degrees of, with *options* for the other fields.

    >>> parse_plan("dp=4,tp=8,pp=2,sp", zero=1)
    Plan(dp=4, tp=8, pp=2, ep=1, sp=True, zero=1, microbatch=1, schedule='1f1b', interleave=1, \
recompute='none', precision='same')
    """
    known = [field.name for field in fields(Plan)]
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if name not in known:
            raise UsageError(f"unknown part {name!r} of the plan {text!r}{nearest(name, known)}")
        if name in found:
            raise UsageError(f"the plan {text!r} names {name} twice")
        found[name] = _value(text, name, equals, value)
    return Plan(**{**options, **found})


def _value(text: str, name: str, equals: str, value: str) -> object:
    if name == "sp" and not equals:
        return True
    if name in _CHOICES:
        return value
    if not value.isdecimal():
        raise UsageError(f"cannot read {name}={value!r} of the plan {text!r}; expected the form dp=2,tp=4,sp")
    return bool(int(value)) if name == "sp" else int(value)
