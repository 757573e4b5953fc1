"""Checkpoints that are whole or not there: written beside, then renamed; checked before they are believed."""

import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from simulator.errors import OutputError, UsageError
from workloads.training.config import Run, checked
from workloads.training.errors import CheckpointError
from workloads.training.network import Network
from workloads.training.step import make_optimizer

FORMAT = "xpusim-training/1"
KEPT = 2  # so that one is left if the newest turns out to be damaged
_FREE = {"steps", "device", "save_every", "eval_every", "eval_rows", "log_every", "deterministic"}  # may differ


@dataclass(frozen=True, slots=True)
class State:
    """What a checkpoint holds: the run as it was asked for, *step* steps done, parameters, optimizer."""

    run: Run
    step: int
    network: dict[str, Any]
    optimizer: dict[str, Any]


def path_of(folder: Path, step: int) -> Path:
    """Return the name of the checkpoint after *step* steps."""
    return folder / f"step-{step:08d}.pt"


def found(folder: Path) -> list[Path]:
    """Return the checkpoints in *folder*, oldest first."""
    return sorted(path for path in folder.glob("step-*.pt") if re.fullmatch(r"step-\d{8}\.pt", path.name))


def save(folder: Path, run: Run, step: int, network: Network, optimizer: torch.optim.Optimizer) -> Path:
    """Write the checkpoint of *step* and drop all but the newest KEPT; OutputError if it cannot be written.

    A kill at any moment leaves the older ones as they were: the new one has its name only once it is on the disk.
    """
    path = path_of(folder, step)
    content = {
        "format": FORMAT,
        "run": asdict(run),
        "step": step,
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        part.unlink(missing_ok=True)
        raise OutputError(f"cannot write {path}: {str(error).splitlines()[0]}") from None
    for old in found(folder)[:-KEPT]:
        old.unlink()
    return path


def load(path: Path) -> State:
    """Read a checkpoint; CheckpointError names the file and what is wrong, and changes nothing."""
    fault = _damage(path)
    if fault:
        raise _corrupt(path, fault)
    content = _content(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of this program (format {FORMAT})")
    for name, kind in (("run", dict), ("step", int), ("network", dict), ("optimizer", dict)):
        if name not in content:
            raise _corrupt(path, f"no {name}")
        if not isinstance(content[name], kind) or isinstance(content[name], bool):
            raise _corrupt(path, f"{name} is of type {type(content[name]).__name__}, not {kind.__name__}")
    if content["step"] < 1:
        raise _corrupt(path, f"step is {content['step']}")
    fault = _fault_of_run(content["run"]) or _fault_of_tensors(Run(**content["run"]), content)
    if fault:
        raise _corrupt(path, fault)
    return State(Run(**content["run"]), content["step"], content["network"], content["optimizer"])


def _corrupt(path: Path, fault: str) -> CheckpointError:
    others = [each.name for each in found(path.parent) if each != path]
    hint = f"; {others[-1]} is there too: move the damaged one away to go on from it" if others else ""
    return CheckpointError(f"{path}: corrupt checkpoint ({fault}); nothing was overwritten{hint}")


def _content(path: Path) -> Any:
    """Unpickle tensors, numbers and text, and nothing that could run code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says at length what else the archive might be
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise _corrupt(path, "its pickle is damaged or holds more than tensors, numbers and text") from None
    except Exception:
        raise CheckpointError(f"{path}: not a checkpoint of this program (format {FORMAT})") from None


def _fault_of_run(saved: Mapping[Any, Any]) -> str:
    """Say what keeps *saved* from being a `Run`; nothing if it is one."""
    kinds: dict[str, Any] = {each.name: each.type for each in fields(Run)}
    for name in saved:
        if name not in kinds:
            return f"run has the unknown field {name!r}"
    for name, kind in kinds.items():
        if name not in saved:
            return f"run has no {name}"
        value = saved[name]
        if type(value) is not kind and not (kind is float and type(value) is int):
            return f"{name} of run is of type {type(value).__name__}, not {kind.__name__}"
    try:
        checked(Run(**saved))
    except UsageError as error:
        return f"run: {error}"
    return ""


def _fault_of_tensors(run: Run, content: Mapping[str, Any]) -> str:
    """Say what in network and optimizer is not as *run* makes them; nothing if all is."""
    with torch.device("meta"):
        network = Network(checked(run))
    optimizer = make_optimizer(network, replace(run, device="cpu"))
    fault = _differs("network", content["network"], network.state_dict())
    if fault:
        return fault
    groups, states = content["optimizer"].get("param_groups"), content["optimizer"].get("state")
    if not isinstance(groups, list) or not isinstance(states, dict):
        return "optimizer has no " + ("state" if isinstance(groups, list) else "param_groups")
    fresh = optimizer.state_dict()["param_groups"]
    if [_settings(each) for each in groups] != [_settings(each) for each in fresh]:
        return "param_groups of optimizer are those of another run"
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    if set(states) != set(range(len(parameters))):
        return f"optimizer has the state of {len(states)} parameters, not of {len(parameters)}"
    for at, parameter in enumerate(parameters):
        wanted = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
        fault = _differs(f"state {at} of optimizer", states[at], wanted)
        if fault:
            return fault
    return ""


def _settings(group: Any) -> str:
    """What a group of parameters is, but for the learning rate, which each step sets."""
    names = ("params", "betas", "eps", "weight_decay", "amsgrad", "maximize")
    return repr([group.get(name) for name in names]) if isinstance(group, dict) and "lr" in group else ""


def _differs(what: str, got: Any, wanted: Mapping[str, torch.Tensor]) -> str:
    """Say where *got* is not made of tensors like *wanted*; nothing if it is."""
    if not isinstance(got, Mapping):
        return f"{what} is of type {type(got).__name__}, not dict"
    for name in got:
        if name not in wanted:
            return f"{what} has the unknown tensor {name!r}"
    for name, like in wanted.items():
        if name not in got:
            return f"{what} has no {name}"
        each = got[name]
        if not isinstance(each, torch.Tensor):
            return f"{name} of {what} is of type {type(each).__name__}, not a tensor"
        if each.shape != like.shape or each.dtype != like.dtype:
            return f"{name} of {what} is {_kind(each)}, not {_kind(like)}"
    return ""


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _damage(path: Path) -> str:
    """Say what is wrong with the file, by the checksums that torch's zip archive carries; nothing if it is whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:  # encrypted: RuntimeError
        return str(error).lower() or "it ends too early"
    return f"checksum of {bad} is wrong" if bad else ""


def check_same(path: Path, saved: Run, run: Run) -> None:
    """Raise CheckpointError if *run* could not be the continuation of *saved*."""
    before, now = asdict(saved), asdict(run)
    changed = [name for name in before if name not in _FREE and before[name] != now[name]]
    if changed:
        what = ", ".join(f"{name} {before[name]} -> {now[name]}" for name in changed)
        raise CheckpointError(f"{path}: saved by another run ({what}); start it in another folder")
