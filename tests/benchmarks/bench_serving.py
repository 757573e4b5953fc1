"""How fast serving is simulated: ``python -m tests.benchmarks.bench_serving``.

Targets: 10,000 requests of llama-8b on h200 in 20 s, 200 times faster than they would take, in 1 GB; and a step of the
scheduler over 256 running sequences in 150 us.  Tracing the model is a one-time cost and timed apart.
"""

import resource
import sys
import time
from argparse import Namespace

from hw_models import load_chip
from simulator.cli.serving_options import load_family
from simulator.serving import Limits, Request, Scheduler
from simulator.serving.arrivals import Pattern, length, make
from simulator.serving.capacity import capacity
from workloads.inference.serving import Plan, serve
from workloads.inference.times import StepTimes

_COUNT = 10_000
_STEPS = 500


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def scheduler_step() -> float:
    """Microseconds of one step of 256 decodes, taken alone."""
    scheduler = Scheduler(Limits(256, 4096, 8192, 16, 20_000))
    for id in range(256):
        scheduler.add(Request(id, 0, 512 + id, 2000))
    for _ in range(60):  # prompts
        step = scheduler.schedule()
        assert step is not None
        scheduler.finish(step)
    start = time.process_time()
    for _ in range(_STEPS):
        step = scheduler.schedule()
        assert step is not None
        scheduler.finish(step)
    return (time.process_time() - start) / _STEPS * 1e6


def main() -> None:
    """Print each measurement; processor time, since the machine may be shared."""
    _say(f"scheduler, 256 decodes: {scheduler_step():.0f} us a step (target 150)")
    start = time.process_time()
    family = load_family(Namespace(target="llama-8b", dtype="bf16", config=[], program="engine"))
    _say(f"tracing llama-8b at four sizes: {time.process_time() - start:.1f} s")
    chip = load_chip("h200")
    room = capacity(family, chip, 16, 2048, 256)
    prompt, output = length("lognormal:512", "--prompt"), length("lognormal:128", "--output")
    for rate in (4.0, 20.0):
        times = StepTimes(family, chip)
        plan = Plan("llama-8b", "", chip, Limits(context=131_072, blocks=room.blocks), room, times)
        requests = make(Pattern(rate, prompt, output), _COUNT, seed=0)
        start = time.process_time()
        log = plan.run(requests)
        alone = time.process_time() - start
        summary = serve(plan, requests)
        whole = time.process_time() - start - alone
        simulated = summary.figures.seconds
        _say(
            f"{_COUNT:,} requests at {rate:g}/s, {simulated:.0f} s simulated, {summary.figures.steps:,} steps: "
            f"{alone:.1f} s, {simulated / alone:.0f} x real time; "
            f"again with step times known, bounds and saturation point: {whole:.1f} s"
        )
        assert len(log.served) == _COUNT
    unit = 1024 if sys.platform == "linux" else 1
    _say(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9:.2f} GB, torch included (target 1)")


if __name__ == "__main__":
    main()
