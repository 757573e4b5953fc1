"""Checkpoints that are whole or not there: written beside, then renamed; checked before they are believed."""

import os
import re
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from simulator.errors import OutputError
from workloads.training.config import Run
from workloads.training.errors import CheckpointError
from workloads.training.network import Network

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
        others = [each.name for each in found(path.parent) if each != path]
        hint = f"; {others[-1]} is there too: move the damaged one away to go on from it" if others else ""
        raise CheckpointError(f"{path}: corrupt checkpoint ({fault}); nothing was overwritten{hint}")
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of this program (format {FORMAT})")
    return State(Run(**content["run"]), content["step"], content["network"], content["optimizer"])


def _damage(path: Path) -> str:
    """Say what is wrong with the file, by the checksums that torch's zip archive carries; nothing if it is whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except (zipfile.BadZipFile, OSError) as error:
        return str(error).lower()
    return f"checksum of {bad} is wrong" if bad else ""


def check_same(path: Path, saved: Run, run: Run) -> None:
    """Raise CheckpointError if *run* could not be the continuation of *saved*."""
    before, now = asdict(saved), asdict(run)
    changed = [name for name in before if name not in _FREE and before[name] != now[name]]
    if changed:
        what = ", ".join(f"{name} {before[name]} -> {now[name]}" for name in changed)
        raise CheckpointError(f"{path}: saved by another run ({what}); start it in another folder")
