"""Predictions for rows of measurements: kernels as single operators, steps as traced programs."""

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from hw_models.roofline import Roofline
from hw_models.tile.kernels import kernel_graph, known_kernels
from simulator.cli.validate_read import CONTEXT, ENERGY, GEMM, GENERATION, KERNELS, STEPS, Format, Measured
from simulator.costs import compute_model
from simulator.dtypes import DType
from simulator.energy import idle_energy
from simulator.errors import SpecError, UsageError, nearest
from simulator.graph import OperatorGraph, Workload
from simulator.hardware import Chip
from simulator.program import Mode
from simulator.simulation import simulate
from simulator.units import AJ_PER_JOULE, PS_PER_SECOND
from simulator.variants import INFINITE, Resource, scaled

_RESOURCES = (Resource.COMPUTE, Resource.BANDWIDTH, Resource.LAUNCH, Resource.CAPACITY)
_GEMM_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """*predicted* and *roofline* in the unit of the measurement; None with a *note* where nothing is predicted.

    group    what it is counted under; *regime* the resource that binds.
    counted  whether it goes into the means; peak_bytes is predicted for steps only.
    """

    row: Measured
    group: str
    predicted: float | None
    roofline: float | None
    regime: str
    note: str = ""
    counted: bool = True
    peak_bytes: int | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted is None else self.predicted / self.row.measured - 1

    @property
    def roofline_error(self) -> float | None:
        return None if self.roofline is None else self.roofline / self.row.measured - 1


def predict(
    form: Format, rows: Sequence[Measured], chip: Chip, fidelity: str = "tile", models: Path | None = None
) -> list[Prediction]:
    """One prediction for each of *rows*, in order; *models* is the file whose MODELS the steps are made of."""
    if form is STEPS:
        if models is None:
            raise UsageError("a table of steps needs --models FILE: the file whose MODELS were measured")
        return _steps(rows, chip, fidelity, models)
    if form is ENERGY:
        return _energies(rows, chip, fidelity, models)
    return _kernels(form, rows, chip, fidelity)


def _kernels(form: Format, rows: Sequence[Measured], chip: Chip, fidelity: str) -> list[Prediction]:
    """Kernel times, with the resource that saves most when it is infinite."""
    base = compute_model(fidelity, chip)
    floor = Roofline(chip)
    others = {each: compute_model(fidelity, scaled(chip, each, INFINITE)) for each in _RESOURCES}
    found = []
    for row in rows:
        kernel = kernel_of(form, row)
        group, graph = kernel.group, kernel.graph
        if graph is None:
            found.append(Prediction(row, group, None, None, "", kernel.note, counted=False))
            continue
        time = sum(cost.time for cost in base.costs(graph))
        savings = {each: time - sum(cost.time for cost in model.costs(graph)) for each, model in others.items()}
        regime = str(max(savings, key=lambda each: savings[each])) if time else "none"
        scale = PS_PER_SECOND * form.base
        roofline = sum(cost.time for cost in floor.costs(graph)) / scale
        found.append(Prediction(row, group, time / scale, roofline, regime))
    return found


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a row measured: *op*, and the *group* that it counts under; without a *graph* a *note* says why."""

    op: str
    group: str
    graph: OperatorGraph | None
    note: str = ""


def kernel_of(form: Format, row: Measured) -> Kernel:
    """The kernel of *row* in a table of kernels or of an accelerator's products and attention."""
    values = row.values
    if form is KERNELS:
        op, dtype, shape = values["op"], DType(values["dtype"]), values["shape"]
        return _kernel(row, op, f"{op} {dtype}" if op == "gemm" else str(op), dtype, shape)
    if form is GEMM:
        group, name = f"gemm {values['dtype']}", values["dtype"]
        if name not in _GEMM_DTYPES:
            return Kernel("gemm", group, None, f"weights of type {name} are not modelled")
        sizes = {"M": values["m"], "N": values["n"], "K": values["k"]}
        return _kernel(row, "gemm", group, DType(_GEMM_DTYPES[name]), sizes)
    return _kernel(row, "sdpa", form.name, DType.BF16, _attention(form, values))


def _kernel(row: Measured, op: str, group: str, dtype: DType, shape: dict[str, int]) -> Kernel:
    try:
        graph = kernel_graph(op, dtype, shape)
    except KeyError as error:
        raise SpecError(f"line {row.line}, column shape: {op} needs a size {error.args[0]!r}") from None
    note = "" if graph is not None else f"unknown operator {op!r}{nearest(op, known_kernels())}"
    return Kernel(op, group, graph, note)


def _attention(form: Format, values: Mapping[str, Any]) -> dict[str, int]:
    heads = {
        "B": values["batch_size"],
        "H": values["num_heads"],
        "Hkv": values["num_kv_heads"],
        "D": values["head_dim"],
    }
    if form is CONTEXT:
        return {**heads, "Sq": values["isl"], "Skv": values["isl"], "causal": 1}
    assert form is GENERATION
    return {**heads, "Sq": 1, "Skv": values["kv_len"], "causal": 0}


def _steps(rows: Sequence[Measured], chip: Chip, fidelity: str, models: Path) -> list[Prediction]:
    """Whole steps; the modes of one step share a trace."""
    programs = Programs(models)
    found = []
    for row in rows:
        values = row.values
        mode = values["mode"]
        group = f"{values['phase']} {mode}"
        if mode not in list(Mode):
            note = f"unknown mode {mode!r}{nearest(mode, list(Mode))}"
            found.append(Prediction(row, group, None, None, "", note, counted=False))
            continue
        graph, note = programs.graph(row)
        if graph is None:
            found.append(Prediction(row, group, None, None, "", note, counted=False))
            continue
        result = simulate(graph, chip, mode=mode, fidelity=fidelity)
        scale = PS_PER_SECOND * STEPS.base
        roofline = sum(cost.time for cost in Roofline(chip).costs(graph)) / scale
        regime = str(max(result.bounds_ps, key=lambda each: result.bounds_ps[each]))
        peak = result.peak_memory_bytes
        found.append(Prediction(row, group, result.time / scale, roofline, regime, peak_bytes=peak))
    return found


def _energies(rows: Sequence[Measured], chip: Chip, fidelity: str, models: Path | None) -> list[Prediction]:
    """Energy of one call in a long row of calls; beside it, the power cap over the time of the plain roofline.

    The host launches kernels one by one, ahead of the device: a call takes the longer of kernel and dispatch.  Whole
    steps are captured graphs.
    """
    programs = Programs(models) if models else None
    return [_energy(row, chip, fidelity, programs) for row in rows]


def _energy(row: Measured, chip: Chip, fidelity: str, programs: "Programs | None") -> Prediction:
    name, shape = row.values["op"], row.values["shape"]
    if name == "idle":
        return Prediction(row, name, None, None, "", "idle: what the chip's description is taken from", counted=False)
    model, _, phase = name.rpartition(" ")
    if phase in _BUILD:
        if programs is None:
            raise UsageError(f"line {row.line}: {name} needs --models FILE: the file whose MODELS were measured")
        graph, note = programs.graph(
            Measured(row.line, {"phase": phase, "model": model, "config": shape}, row.measured)
        )
        group, op_by_op = f"steps {phase}", False
    else:
        group, dtype, sizes = _energy_kernel(name, shape)
        kernel = _kernel(row, group, group, dtype, sizes)
        graph, note = kernel.graph, kernel.note
        op_by_op = True
    if graph is None:
        return Prediction(row, group, None, None, "", note, counted=False)
    result = simulate(_repeated(graph) if op_by_op else graph, chip, fidelity=fidelity)
    if result.energy is None:
        note = f"{chip.name} says nothing about energy: power.idle and power.energy are needed"
        return Prediction(row, group, None, None, "", note, counted=False)
    cap = chip.power.cap if chip.power is not None else 0
    floor = sum(cost.time for cost in Roofline(chip).costs(graph)) / PS_PER_SECOND * cap
    last = [result.operators[index] for index in range(len(result.operators) - len(graph), len(result.operators))]
    time = max(last[-1].end - last[0].start, len(graph) * chip.overheads.host_dispatch) if op_by_op else result.time
    idle = idle_energy(time, chip)
    energy = (sum(each.energy or 0 for each in last) + (idle or 0)) / AJ_PER_JOULE
    return Prediction(row, group, energy / ENERGY.base, floor / ENERGY.base, str(result.bound))


def _energy_kernel(name: str, shape: dict[str, int]) -> tuple[str, DType, dict[str, int]]:
    """Operator, type and sizes of a kernel as the table of energies names it.

    ``gemm_fp8`` has its type in its name, others are bf16; ``n`` is a number of elements, ``S`` of queries and keys;
    ``sdpa`` is the kernel that the framework takes by itself.
    """
    op, _, suffix = name.rpartition("_")
    op, dtype = (op, DType(suffix)) if op and suffix in list(DType) else (name, DType.BF16)
    sizes = dict(shape)
    if "n" in sizes:
        sizes |= {"R": 1, "C": sizes["n"]}
    if "S" in sizes:
        sizes |= {"Sq": sizes["S"], "Skv": sizes["S"], "Hkv": sizes.get("Hkv", sizes.get("H", 1))}
    return "attention" if op == "sdpa" else op, dtype, sizes


def _repeated(graph: OperatorGraph) -> OperatorGraph:
    """The operators of *graph* twice, on the same tensors: what is small is still in the cache the second time."""
    twice = OperatorGraph(graph.workload)
    for storage in graph.storages:
        twice.add_storage(storage.name, storage.role, storage.nbytes)
    for shift in (0, len(graph)):
        for op in graph:
            twice.add(replace(op, id=op.id + shift, deps=tuple(each + shift for each in op.deps)))
    return twice


class Programs:
    """The models of a user's file, traced as the measurement ran them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, OperatorGraph] = {}

    @cached_property
    def _module(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"xpusim_user_{self._path.stem}", self._path)
        if spec is None or spec.loader is None or not self._path.is_file():
            raise SpecError(f"cannot read {self._path}: not a Python file")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # the user's code can raise anything
            raise SpecError(f"{self._path}: {type(error).__name__}: {error}") from None
        if not isinstance(getattr(module, "MODELS", None), dict):
            raise SpecError(f"{self._path}: has no MODELS, a dictionary of names and functions that make a module")
        return module

    def graph(self, row: Measured) -> tuple[OperatorGraph | None, str]:
        """The operators of the step in *row*, or None and why not."""
        phase, name, config = row.values["phase"], row.values["model"], row.values["config"]
        if name not in self._module.MODELS:
            return None, f"{self._path.name} has no model {name!r}{nearest(name, self._module.MODELS)}"
        if phase not in _BUILD:
            return None, f"unknown phase {phase!r}{nearest(phase, _BUILD)}"
        key = f"{phase} {name} {sorted(config.items())}"
        if key not in self._known:
            try:
                self._known[key] = _BUILD[phase](self._module, name, config)
            except KeyError as error:
                raise SpecError(f"line {row.line}, column config: {phase} needs a size {error.args[0]!r}") from None
        return self._known[key], ""


def _made(module: ModuleType, name: str) -> Any:
    from frontends import building

    with building():
        return module.MODELS[name]()


def _prefill(module: ModuleType, name: str, config: Mapping[str, int]) -> OperatorGraph:
    import torch

    from frontends import trace

    ids = torch.empty(config["B"], config["S"], dtype=torch.int64, device="meta")
    work = Workload(name, "prefill", config["B"], config["B"] * config["S"], config["S"])
    return trace(_made(module, name), (ids,), workload=work, dtype=DType.BF16)


def _decode(module: ModuleType, name: str, config: Mapping[str, int]) -> OperatorGraph:
    import torch

    from frontends import trace

    model = _made(module, name)
    ids = torch.empty(config["B"], 1, dtype=torch.int64, device="meta")
    caches = module.caches(model, config["B"], config["ctx"], torch.bfloat16, "meta")
    work = Workload(name, "decode", config["B"], config["B"], config["ctx"])
    return trace(model, (ids, caches), workload=work, dtype=DType.BF16)


def _train(module: ModuleType, name: str, config: Mapping[str, int]) -> OperatorGraph:
    """Forward with all logits, cross entropy, backward and fused AdamW."""
    import torch

    from frontends import trace_training_step

    model = _made(module, name)
    ids = torch.empty(config["B"], config["S"], dtype=torch.int64, device="meta")
    all_logits = {"last_only": False} if "last_only" in inspect.signature(model.forward).parameters else {}
    work = Workload(name, "train", config["B"], config["B"] * config["S"], config["S"])
    return trace_training_step(model, (ids,), all_logits, workload=work, dtype=DType.BF16)


_BUILD: dict[str, Callable[[ModuleType, str, Mapping[str, int]], OperatorGraph]] = {
    "prefill": _prefill,
    "decode": _decode,
    "train": _train,
}
