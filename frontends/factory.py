"""A user's own program from his own file: ``path.py:factory``."""

import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from frontends.blame import blaming
from frontends.host import Host
from frontends.ledger import Ledger
from frontends.recorder import Recorder
from frontends.scopes import Scopes
from frontends.shadows import Shadows
from simulator.errors import UsageError, nearest
from simulator.graph import Workload

Loaded = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
_FORM = "expected the form path.py:factory"


def load_factory(
    target: str, kwargs: Mapping[str, Any] | None = None, *, optional: Mapping[str, Any] | None = None
) -> Loaded:
    """Call the factory that *target* names and return ``(module, args, kwargs)``; no weight memory is taken.

    A factory is a function that returns ``(module, args)`` or ``(module, args, kwargs)``.  *kwargs* are handed to it;
    *optional* ones only if it has a parameter of that name.  Whatever it makes, it makes on the meta device.

    Raises UsageError for a missing file or name and for a factory that takes or returns something else, TraceError
    with the user's line if his code raises.
    """
    factory = _find(target)
    given = _accepted(target, factory, dict(kwargs or {}), dict(optional or {}))
    with blaming(f"the factory {target}"), building():
        result = factory(**given)
    return _checked(target, result)


@contextmanager
def building() -> Iterator[None]:
    """Make every tensor on the meta device, faster than torch does, and keep the values of constants.

    Code inside may read those (``[rate.item() for rate in torch.linspace(0, 1, depth)]``); random initialisation takes
    no time, where a plain ``torch.device("meta")`` loads torch's compiler for it.
    """
    shadows = Shadows()
    ledger = Ledger(Workload("construction"), shadows.forget)
    recorder = Recorder(ledger, Scopes(nn.Module()), shadows)
    with recorder, Host(recorder):
        yield


def _find(target: str) -> Any:
    file, colon, name = target.rpartition(":")
    if not colon or not name or not file.endswith(".py"):
        raise UsageError(f"{target!r} is no factory: {_FORM}")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{target}: there is no file {file}")
    module = _imported(path, target)
    if not hasattr(module, name):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise UsageError(f"{file} has no {name!r}{nearest(name, known)} (it has: {', '.join(known) or 'no functions'})")
    found = getattr(module, name)
    if not callable(found):
        raise UsageError(f"{target} must be a function that returns (module, args), got {type(found).__name__}")
    return found


def _imported(path: Path, target: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"xpusim_user_{path.stem}", path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with blaming(f"importing {target.rpartition(':')[0]}"):
            spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _accepted(target: str, factory: Any, kwargs: dict[str, Any], optional: dict[str, Any]) -> dict[str, Any]:
    """Return what to call the factory with, after checking it against its parameters."""
    parameters = inspect.signature(factory).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    names = [name for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    for name in kwargs:
        if name not in names and not takes_all:
            raise UsageError(
                f"{target} takes no {name!r}{nearest(name, names)} (it takes: {', '.join(names) or 'nothing'})"
            )
    given = {**{name: value for name, value in optional.items() if name in names}, **kwargs}
    missing = [name for name in names if parameters[name].default is inspect.Parameter.empty and name not in given]
    if missing:
        raise UsageError(f"{target} needs a value for {', '.join(missing)}")
    return given


def _checked(target: str, result: Any) -> Loaded:
    if isinstance(result, tuple) and len(result) in (2, 3) and isinstance(result[0], nn.Module):
        module, args, kwargs = result if len(result) == 3 else (*result, {})
        if isinstance(args, torch.Tensor):
            args = (args,)
        if isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
            return module, tuple(args), dict(kwargs)
    raise UsageError(f"{target} must return (module, args) or (module, args, kwargs), got {_shape_of(result)}")


def _shape_of(result: Any) -> str:
    if isinstance(result, tuple):
        return f"({', '.join(type(each).__name__ for each in result)})"
    return type(result).__name__
