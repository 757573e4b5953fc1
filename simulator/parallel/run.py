"""From the stages of a plan and a system to a result: play, compose, count memory, ask what wider links would bring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from simulator.dims import CollectiveDims
from simulator.graph import Operator, Workload
from simulator.hardware import Chip
from simulator.parallel.links import STEP, elasticity, wider
from simulator.parallel.memory import rank_memory
from simulator.parallel.plan import Plan
from simulator.parallel.played import Kinds, Network, Player, Prices
from simulator.parallel.result import Run
from simulator.parallel.schedule import orders
from simulator.parallel.stage import Stage
from simulator.parallel.step import Part, Step, play_step
from simulator.program import Mode
from simulator.system import System

Networks = Callable[[System], Network]  # how collectives are priced on a system


@dataclass(frozen=True, slots=True)
class Machine:
    """*system* of *chip*, and how its collectives and operators are priced.

    network  that of *system* itself, which remembers what it was asked.
    holds    whether a rank computes nothing while it sends to the next stage (blocking sends).
    """

    system: System
    chip: Chip
    networks: Networks
    prices: Prices
    network: Network
    holds: bool = False

    @property
    def held(self) -> float:
        """Share of the cores that collectives hold while they run."""
        software = self.system.calibration
        return min(0.9, software.cores / self.chip.cores) if software else 0.0

    @property
    def library(self) -> int:
        """Bytes that the matrix library keeps in training: for two threads and two streams."""
        return 4 * self.chip.overheads.workspace


def machine(system: System, chip: Chip, networks: Networks, fidelity: str = "tile", mode: Mode = Mode.GRAPH) -> Machine:
    """Return *system* with its prices; UsageError for an unknown fidelity."""
    return Machine(system, chip, networks, Prices(chip, fidelity, mode), networks(system))


def training_run(
    stages: Sequence[Stage], plan: Plan, on: Machine, traced: Workload, flops: int, batch: int, ask: bool = True
) -> Run:
    """One step of the model that *stages* are the shards of.

    traced  the workload of one microbatch, and *flops* its model FLOPs; *batch* sequences of a step, over all ranks.
    ask     whether to play it again with wider links, for elasticities.
    """
    step = step_on(on.system, stages, plan, on, batch)
    levels = [name for name, level in on.system.levels if level.members > 1 and ask]
    more = {
        name: elasticity(step.time, step_on(wider(on.system, name, STEP), stages, plan, on, batch).time)
        for name in levels
    }
    times = batch // plan.microbatch
    whole = replace(traced, batch=batch, tokens=traced.tokens * times)
    order = orders(plan.schedule, plan.pp, batch // (plan.dp * plan.microbatch), plan.interleave)
    memory = [
        rank_memory(stages[rank :: plan.pp], order[rank], on.chip.dram.capacity, on.library) for rank in range(plan.pp)
    ]
    notes = tuple(dict.fromkeys(note for stage in stages for note in stage.notes))
    return Run(whole, on.system, on.chip, plan, flops * times, step, memory, more, notes)


def step_on(system: System, stages: Sequence[Stage], plan: Plan, on: Machine, batch: int) -> Step:
    """The step with *system*'s links and *on*'s chips."""
    network = on.network if system is on.system else on.networks(system)
    return play_step(
        parts_on(Player(on.prices, network, kinds_of(plan), on.held), network, stages, plan),
        plan.schedule,
        plan.pp,
        batch // (plan.dp * plan.microbatch),
        on.holds,
    )


def parts_on(player: Player, network: Network, stages: Sequence[Stage], plan: Plan) -> list[Part]:
    """Play every pass of every stage; equal ones once."""
    return [
        Part(
            forward=player.play(stage.forward),
            backward=player.play(stage.backward),
            last=player.play(stage.last_backward),
            optimizer=player.play(stage.optimizer),
            send=_send(network, plan, index, stage.send_bytes) if index + 1 < len(stages) else 0,
            sent=stage.send_bytes,
        )
        for index, stage in enumerate(stages)
    ]


def _send(network: Network, plan: Plan, index: int, nbytes: int) -> int:
    """Picoseconds until the next stage has *nbytes* of each rank.

    Tensor-parallel ranks that all hold the same send a share each and gather it beyond, where that is faster
    (Narayanan et al., arXiv 2104.04473, section 4.1).
    """
    if not nbytes or plan.pp == 1:
        return 0
    across = plan.tp * plan.dp
    ranks = (index % plan.pp * across, (index + 1) % plan.pp * across)
    whole = network("send_recv", nbytes, ranks).alone
    if plan.tp == 1 or plan.sp:
        return whole
    share = network("send_recv", -(-nbytes // plan.tp), ranks).alone
    return min(whole, share + network("all_gather", nbytes, plan.ranks_of("tp")).alone)


def kinds_of(plan: Plan) -> Kinds:
    """Which parallelism of *plan* a collective serves."""

    def kind(op: Operator) -> str:
        assert isinstance(op.dims, CollectiveDims)
        return kind_of(plan, op.dims.pattern, op.group)

    return kind


def kind_of(plan: Plan, pattern: str, ranks: Sequence[int]) -> str:
    """Which parallelism of *plan* a collective over *ranks* serves; all-to-all is always that of experts.

    >>> kind_of(Plan(dp=2, tp=4), "all_reduce", (1, 5))
    'dp'
    """
    if pattern == "all_to_all":
        return "ep"
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if plan.pp > 1 and abs(stride) >= plan.tp * plan.dp:
        return "pp"
    return "tp" if plan.tp > 1 and abs(stride) < plan.tp else "dp"
