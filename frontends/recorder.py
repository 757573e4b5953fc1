"""Records every ATen operator that a program runs on meta tensors, one for one with what eager launches."""
# mypy: disallow-untyped-calls=False

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

import frontends.rules_attention
import frontends.rules_collectives
import frontends.rules_convolution
import frontends.rules_matmul
import frontends.rules_moves
import frontends.rules_pointwise
import frontends.rules_rows  # noqa: F401  the rules enter themselves
from frontends import collectives
from frontends.blame import DataDependentError, OutOfRangeError
from frontends.dtypes import dtype_of
from frontends.ledger import Ledger
from frontends.rules import Call, Work, bytes_of, floating_type, work_of
from frontends.scopes import Scopes
from frontends.shadows import Shadows
from frontends.shapes import SHAPES
from frontends.shards import PLAIN
from simulator.dtypes import DType
from simulator.errors import TraceError
from simulator.graph import MATRIX_KINDS, Operator, OpKind, Role

META = torch.device("meta")
_FAKE = torch._C._TorchDispatchModeKey.FAKE

_ALLOCATES_ONLY = frozenset(
    f"aten.{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
)
_INDEXES = ("aten.index", "aten._unsafe_index")
_MASKS = (torch.bool, torch.uint8)
_RANDOMISES = frozenset(
    f"aten.{name}_"
    for name in ("normal", "uniform", "bernoulli", "random", "exponential", "cauchy", "geometric", "log_normal")
)  # on meta they do nothing, for which torch loads its compiler: seconds
_OVERWRITES = _RANDOMISES | {"aten.copy_", "aten.fill_", "aten.zero_", "fsdp.split_with_sizes_copy", "fsdp.chunk_cat"}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the schema of an operator says.

    changed      places and names of the arguments that it writes to.
    shape_only   it reads nothing of its tensors but their shape (``zeros_like``).
    value        it hands a value to Python; *dynamic*: the shape of its output depends on values.
    communicates it belongs to torch.distributed.
    """

    target: str
    changed: tuple[tuple[int, str], ...]
    shape_only: bool
    value: bool
    dynamic: bool
    communicates: bool


def _facts(func: Any) -> _Facts:
    namespace, _, name = func._schema.name.partition("::")
    arguments = enumerate(func._schema.arguments)
    changed = tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)
    value = torch.Tag.data_dependent_output in func.tags
    dynamic = torch.Tag.dynamic_output_shape in func.tags
    target, shape_only = f"{namespace}.{name}", name.endswith("_like") or name.startswith("new_")
    return _Facts(target, changed, shape_only, value, dynamic, collectives.communicates(target))


class Recorder(TorchDispatchMode):
    """A dispatch mode that runs each operator on meta tensors and writes it into the books.

    new_call  set by whoever sees the program's calls into the framework: the next operator opens a new one.
    tf32      matrix products of float32 run in tf32, as with ``torch.set_float32_matmul_precision("high")``.
    """

    def __init__(self, ledger: Ledger, scopes: Scopes, shadows: Shadows, *, tf32: bool = False) -> None:
        super().__init__()
        self._tf32 = tf32
        self.streams = collectives.Streams()
        self.ledger = ledger
        self.shadows = shadows
        self.new_call = False
        self._scopes = scopes
        self._pending = 0
        self._known: dict[Any, _Facts] = {}
        self._constants = WeakTensorKeyDictionary()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to guard this class against its compiler: that would load it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._get_dispatch_mode(_FAKE) is not None:
            return func(*args, **(kwargs or {}))  # a DTensor asks for shapes: no work of the program's
        if any(each not in PLAIN for each in types):
            return NotImplemented  # a tensor made of others, such as a DTensor, takes itself apart first
        with torch._C.DisableTorchFunction():  # shape functions in Python are no calls of the program
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        facts = self._known.get(func)
        if facts is None:
            facts = self._known[func] = _facts(func)
        if self.new_call:
            self.new_call = False
            self._pending += 1
        tensors = list(_tensors(args)) + list(_tensors(kwargs.values()))
        if not all(tensor.is_meta for tensor in tensors) or "device" in kwargs:
            args, kwargs = self._on_device(args), {name: self._on_device(each) for name, each in kwargs.items()}
            tensors = list(_tensors(args)) + list(_tensors(kwargs.values()))
        if facts.communicates:
            return collectives.run(self, func, facts.target, args, kwargs)
        if facts.value:
            return self._value(func, facts, args)
        if facts.dynamic and _needs_values(facts.target, args, kwargs):
            result = self._from_values(func, facts, args, kwargs)
        else:
            if facts.target == "aten.embedding":
                self._check_positions(*args[:2])
            result = _run(func, facts.target, args, kwargs)
        self._note(func, facts, args, kwargs, tensors, result)
        return result

    def constant(self, values: torch.Tensor) -> torch.Tensor:
        """Return a meta tensor that stands for a tensor with known *values* that the program brings along."""
        known = self._constants.get(values)
        if known is None:
            known = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device=META)
            self.ledger.adopt(known, "constant", Role.BUFFER)
            self.shadows.keep(known, values)
            self._constants[values] = known
        return known  # type: ignore[no-any-return]

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if value.is_meta else self.constant(value)
        if isinstance(value, list | tuple):
            return type(value)(self._on_device(each) for each in value)
        return META if isinstance(value, torch.device) else value

    def _value(self, func: Any, facts: _Facts, args: Any) -> Any:
        twins = [self.shadows.of(each) if isinstance(each, torch.Tensor) else each for each in args]
        if any(twin is None for twin in twins):
            raise self.unknown(args[0])
        return func(*twins)

    def unknown(self, tensor: torch.Tensor) -> DataDependentError:
        """Return the error for a program that looks at *tensor*, whose values nobody knows here."""
        source = self.ledger.source(tensor, OpKind.COLLECTIVE)
        if source is None:
            return DataDependentError("reads the value of a tensor")
        ranks = ", ".join(map(str, source.group))
        return DataDependentError(f"reads a value that comes out of {source.name} over ranks {ranks}")

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy *tensor* as a kernel of the program would."""
        return self._dispatch(torch.ops.aten.clone.default, (tensor,), {})  # type: ignore[no-any-return]

    def forget(self, tensor: torch.Tensor) -> None:
        """The values of *tensor* come from another rank now."""
        self.shadows.forget(tensor.untyped_storage()._cdata)

    def _from_values(self, func: Any, facts: _Facts, args: Any, kwargs: Any) -> Any:
        """Run an operator whose output's shape depends on values, if the values are known."""
        if facts.target in _INDEXES and (places := self._places(args[1])) is not None:
            return func(args[0], places)
        values = self.shadows.run(func, args, kwargs)
        if values is None:
            raise DataDependentError(f"makes a tensor whose shape depends on values ({facts.target})")
        many = isinstance(values, tuple | list)
        made = [torch.empty_like(each, device=META) for each in (values if many else [values])]
        return tuple(made) if many else made[0]

    def _places(self, indices: Any) -> list[Any] | None:
        """Return *indices* with every mask as the positions that it picks; None if one of them depends on data."""
        places: list[Any] = []
        for index in indices:
            if index is None or index.dtype not in _MASKS:
                places.append(index)
                continue
            mask = self.shadows.of(index)
            if mask is None:
                return None
            places += [self.constant(each.contiguous()) for each in mask.nonzero(as_tuple=True)]
        return places

    def _check_positions(self, table: torch.Tensor, indices: torch.Tensor) -> None:
        values = self.shadows.of(indices)
        if values is None or not values.numel():
            return
        top, low = int(values.max()), int(values.min())
        if top >= table.shape[0] or low < 0:
            module = self._scopes.where()[0] or "the program"
            raise OutOfRangeError(
                f"sequence longer than the model's context: {module} looks up row {top if low >= 0 else low} of a "
                f"table of {table.shape[0]} rows"
            )

    def _note(self, func: Any, facts: _Facts, args: Any, kwargs: Any, tensors: Any, result: Any) -> None:
        """Enter one operator, unless it only made a view or an empty tensor."""
        old = {tensor.untyped_storage()._cdata for tensor in tensors}
        made = [each for each in _tensors((result,)) if each.untyped_storage()._cdata not in old]
        written = [t for i, name in facts.changed for t in _tensors((args[i] if i < len(args) else kwargs.get(name),))]
        if not made and not written:
            return
        if tensors or written or facts.target != "aten.empty":
            self.shadows.follow(func, facts.target, args, kwargs, made, written)
        if facts.target in _ALLOCATES_ONLY:
            return
        unread = {id(t) for t in written} if facts.target in _OVERWRITES or func._overloadname.endswith("out") else ()
        inputs = () if facts.shape_only else tuple({id(t): t for t in tensors if id(t) not in unread}.values())
        self.enter(Call(func, facts.target, args, kwargs, inputs, (*made, *written)))

    def enter(self, call: Call) -> Operator:
        """Write *call* into the books as one operator, and return that."""
        module, phase = self._scopes.where()
        name = f"{module}/{call.target}"
        ledger = self.ledger
        inputs = tuple(ledger.tensor(tensor) for tensor in call.inputs)
        outputs = tuple(ledger.tensor(tensor, name) for tensor in call.outputs)
        work = self._work(call)
        id = len(ledger.graph)
        operator = ledger.add(
            Operator(
                id=id,
                module=module,
                target=call.target,
                kind=work.kind,
                phase=phase,
                inputs=inputs,
                outputs=outputs,
                flops=work.flops,
                reads=bytes_of(call.inputs) if work.reads is None else work.reads,
                writes=bytes_of(call.outputs) if work.writes is None else work.writes,
                deps=self.streams.order(id, work.group, ledger.dependencies(inputs, outputs)),
                dtype=self._rate(work, call),
                dims=work.dims,
                dispatches=max(1, self._pending),
                group=work.group,
            )
        )
        self._pending = 0
        return operator

    def _rate(self, work: Work, call: Call) -> DType:
        """The type whose peak rate bounds the arithmetic."""
        dtype = dtype_of(work.dtype or floating_type(call))
        return DType.TF32 if self._tf32 and dtype is DType.FP32 and work.kind in MATRIX_KINDS else dtype

    def _work(self, call: Call) -> Work:
        try:
            work = work_of(call)
        except Exception as error:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in call.inputs)
            raise TraceError(
                f"the rule for {call.target} raised {type(error).__name__}: {error} (inputs {shapes})"
            ) from error
        if work is None:
            uncovered = self.ledger.graph.uncovered
            uncovered[call.target] = uncovered.get(call.target, 0) + 1
            return Work(OpKind.OTHER)
        return work


def _run(func: Any, target: str, args: Any, kwargs: Any) -> Any:
    """Run *func* on meta tensors."""
    if target in _RANDOMISES:
        return args[0]
    shape = SHAPES.get(target)
    result = None if shape is None else shape(args, kwargs)
    return func(*args, **kwargs) if result is None else result


def _needs_values(target: str, args: Any, kwargs: Any) -> bool:
    """Whether this call's output shape does depend on values: indexing does only with a mask."""
    if target in _INDEXES:
        return any(each.dtype in _MASKS for each in _tensors(args[1]))
    return kwargs.get("output_size") is None


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """The tensors among *values* and in the lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
