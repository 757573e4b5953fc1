"""The verdicts of an analysis as sentences, for the terminal and for the title of the plot."""

import math

from simulator.units import decimal
from workloads.roofline.analysis import Analysis


def machine_name(found: Analysis) -> str:
    """The chip, or how many of it."""
    return found.chip.name if found.count == 1 else f"{found.count} x {found.chip.name}"


def prefill_verdict(found: Analysis) -> str:
    """What binds prefill, and from which prompt length on that changes."""
    point, ridge = found.prefill, found.machine.ridge
    turn = found.prefill_turn
    if turn is None:
        ending = "no prompt within the model's context is compute bound"
    elif turn == 1:
        ending = "compute bound at any length"
    else:
        ending = f"one prompt is compute bound from {turn:,} tokens on"
    return f"{point.bound} bound: {point.intensity:,.0f} FLOP/B against a ridge of {ridge:,.0f}; {ending}"


def decode_verdict(found: Analysis) -> str:
    """What binds decode at the smallest batch."""
    one, ridge = found.decode[0], found.machine.ridge
    start = f"{one.bound} bound at batch {one.batch}: {one.intensity:,.2f} FLOP/B"
    if one.compute_bound:
        return f"{start}, above the ridge of {ridge:,.0f}"
    busy = one.flops / found.machine.peak / one.seconds
    return f"{start}, {ridge / one.intensity:,.0f} times below the ridge; arithmetic is busy {busy:.2%} of the step"


def crossover_verdict(found: Analysis) -> str:
    """From which batch on decode is compute bound, and whether that batch fits."""
    limit = found.crossover_limit
    at = f"at {found.context:,} positions"
    if found.crossover is None:
        below = f"; below {math.floor(limit):,} positions there is one" if limit and limit >= 1 else ""
        return f"none {at}: one more sequence keeps memory busy longer (its keys and values) than arithmetic{below}"
    batch = math.ceil(found.crossover)
    if found.capacity < batch:
        return f"{batch:,} sequences {at}, but {_count(found.capacity)} fit: memory is full before arithmetic is"
    return f"{batch:,} sequences {at}, which fit"


def _count(sequences: int) -> str:
    return f"only {sequences:,}" if sequences else "none"


def capacity_verdict(found: Analysis) -> str:
    """How many sequences fit, or by how much the weights do not."""
    room = decimal(found.machine.capacity, "B")
    weights = decimal(found.weights, "B")
    if found.weights > found.machine.capacity:
        missing = decimal(found.weights - found.machine.capacity, "B")
        return f"does not fit: weights of {weights} in {room}, {missing} too much; needs {math.ceil(found.chips)} chips"
    each = decimal(found.kv_each, "B")
    return f"{found.capacity:,} sequences of {found.context:,} positions: {room} less {weights} of weights, {each} each"


def title(found: Analysis) -> str:
    """The conclusion, in two lines."""
    first = f"{found.model.name} on {machine_name(found)}, {found.dtype}: prefill is {found.prefill.bound} bound"
    at = f"at {found.context:,} positions"
    if found.weights > found.machine.capacity:
        return f"{first},\nand does not fit: {math.ceil(found.chips)} chips would hold its weights"
    if found.crossover is None:
        return f"{first},\ndecode {at} is bandwidth bound at any batch; {found.capacity:,} sequences fit"
    batch = math.ceil(found.crossover)
    fit = "which fits" if batch <= found.capacity else f"but {_count(found.capacity)} fit"
    if batch <= 1:
        return f"{first},\ndecode {at} is compute bound at any batch"
    return f"{first},\ndecode {at} is bandwidth bound below batch {batch:,}, {fit}"
