"""Text out of the engine: a tiny model is trained on the spot, and several requests share its steps."""

import time
from collections.abc import Callable, Sequence

from simulator.serving import Limits
from workloads.gpt.generate import TEXT, tiny
from workloads.gpt.model import Model
from workloads.inference.engine import Engine
from workloads.inference.model import Runner
from workloads.inference.quality import trained
from workloads.inference.sampling import Sampling

PROMPTS = (TEXT[:24], TEXT[66:92], "decode by ", "a long context ", TEXT[66:80])
_BLOCK = 16


def talk(
    prompts: Sequence[str], tokens: int, quantisation: str, sampling: Sampling, device: str, say: Callable[[str], None]
) -> None:
    """Train, serve all *prompts* together and print what comes out, and how it went."""
    began = time.perf_counter()
    model: Model = trained().to(device)
    say(f"trained {tiny().name} on {len(TEXT)} bytes in {time.perf_counter() - began:.1f} s")
    context = tiny().context
    limits = Limits(max_batch=8, max_tokens=64, context=context, block_size=_BLOCK, blocks=4 * context // _BLOCK)
    engine = Engine(Runner(model, quantisation), limits)
    numbers = [engine.add(prompt.encode(), tokens, sampling) for prompt in prompts]
    began = time.perf_counter()
    done = engine.run()
    seconds = time.perf_counter() - began
    for number, prompt in zip(numbers, prompts, strict=True):
        if number in engine.rejected:
            say(f"{prompt[:40]!r}: rejected, {engine.rejected[number]} ({len(prompt.encode())} bytes, {context})")
        else:
            say(f"{prompt!r} -> {bytes(done[number].tokens).decode(errors='replace')!r}")
    made = sum(len(each.tokens) for each in done.values())
    hits = sum(each.cached for each in done.values())
    say(
        f"{made} tokens in {len(engine.records)} steps and {seconds:.2f} s, weights {quantisation}; {hits} positions "
        f"from the prefix cache, {len(engine.rejected)} rejected"
    )
