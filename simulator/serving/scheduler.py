"""Continuous batching with chunked prefill over paged KV blocks; knows neither clock nor model.

The same code serves the real engine, which passes sampled tokens to `finish`, and the simulated one (lengths only).
A step takes the running sequences' decodes first, then the rest of a prompt that is being read, then new sequences in
order of arrival.  When blocks run out, the youngest running sequence loses its own and is computed again later.
"""

from collections import deque
from collections.abc import Sequence as Many
from dataclasses import dataclass
from enum import StrEnum

from simulator.errors import UsageError
from simulator.serving.blocks import BlockPool
from simulator.serving.sequence import NEVER, End, Request, Sequence, Slice, Step


class Rejected(StrEnum):
    """Why a request is not served at all."""

    CONTEXT = "its prompt is longer than the context"
    BLOCKS = "it needs more KV blocks than there are"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one engine can take.

    max_batch     sequences in one step.
    max_tokens    positions in one step; longer prompts are read in chunks.
    context       positions of one sequence, the model's.
    blocks        KV blocks of *block_size* positions.
    prefix_cache  keep full blocks of finished sequences for later ones with the same beginning.
    draft         tokens that a draft model proposes for each decode; the step then checks draft + 1 positions.
    """

    max_batch: int = 256
    max_tokens: int = 2048
    context: int = 8192
    block_size: int = 16
    blocks: int = 1024
    prefix_cache: bool = True
    draft: int = 0

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_tokens", "context", "block_size", "blocks"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} {getattr(self, name)}: must be at least 1")
        if not 0 <= self.draft < self.max_tokens:
            raise UsageError(f"draft {self.draft}: must be at least 0 and below max_tokens, {self.max_tokens}")


class Scheduler:
    """Decides what each step computes.  Use: ``add``, then ``schedule`` and ``finish`` in turn."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.blocks, limits.block_size, limits.prefix_cache)
        self.width = 1 + limits.draft
        self.batch = min(limits.max_batch, limits.max_tokens // self.width)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission; all decode, but the last may still read its prompt
        self.preemptions = 0
        self._reading: Sequence | None = None

    def add(self, request: Request, sent: int = 0, generated: int = 0) -> Rejected | None:
        """Queue *request*, or say why it can never be served.

        sent, generated: another pool has computed that many positions and tokens, and their KV cache is here by now.
        At least one position is computed here, since its logits give the next token.
        """
        limits = self.limits
        if request.prompt > limits.context:
            return Rejected.CONTEXT
        most = min(request.output, limits.context - request.prompt + 1)  # the last token needs no position
        assert generated < most, f"request {request.id} has its {generated} tokens already"
        if -(-(request.prompt + most - 1 + limits.draft) // limits.block_size) > limits.blocks:
            return Rejected.BLOCKS
        ids = None if request.tokens is None else list(request.tokens)
        sent = min(sent, request.prompt + generated - 1)
        self.waiting.append(Sequence(request, most, ids, sent=sent, generated=generated))
        return None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.running and not self.waiting

    def schedule(self) -> Step | None:
        """The next step, its blocks allocated; None if nothing waits and nothing runs."""
        step = Step(self.width)
        self._decode(step)
        budget = self._read_on(step, self.limits.max_tokens - len(step.decodes) * self.width)
        if not step.preempted:
            self._admit(step, budget)
        return step if step.decodes or step.chunks else None

    def _decode(self, step: Step) -> None:
        """Every sequence that has read its prompt; the youngest are dropped while blocks lack."""
        width, reading = self.width, self._reading
        for each in [each for each in self.running if each.computed + width > each.room and each is not reading]:
            if not each.room or not self._grow(each, each.computed + width, step):
                break  # it was itself dropped, and with it all that come after it
        step.decodes = self.running[:-1] if self._reading else self.running.copy()

    def _read_on(self, step: Step, budget: int) -> int:
        """Let the sequence whose prompt is half read go on; returns what is left of the *budget*.

        There is one at most, and it is the youngest: it left nothing of the budget when it was admitted.
        """
        each = self._reading
        if each is None:
            return budget
        count = min(each.length - each.computed, budget)
        if not self._grow(each, each.computed + count, step):
            return budget
        return budget - self._chunk(step, each, count)

    def _admit(self, step: Step, budget: int) -> None:
        """Take waiting sequences in order while there is room for their next chunk."""
        while self.waiting and budget and len(self.running) < self.batch:
            each = self.waiting[0]
            count = self._place(each, budget)
            if not count:
                return
            self.waiting.popleft()
            self.running.append(each)
            budget -= self._chunk(step, each, count)

    def _place(self, each: Sequence, budget: int) -> int:
        """Give *each* the blocks of its known prefix and of its first chunk; the chunk's length, 0 if blocks lack."""
        size, pool = self.limits.block_size, self.pool
        hits: list[int] = []
        if (
            not each.sent and pool.prefix_cache and each.may_hit
        ):  # at least one position is computed, or there would be no logits
            hits = pool.match(each.names((each.length - 1) // size, size))
        known = each.sent or len(hits) * size
        count = min(each.length - known, budget)
        lacking = -(-(known + count) // size) - len(hits)
        if lacking > pool.available - pool.count_idle(hits):
            return 0
        pool.acquire(hits)
        each.blocks = hits + pool.allocate(lacking)
        each.room = len(each.blocks) * size
        each.computed = known
        each.cached += known
        if pool.prefix_cache:
            each.published = len(hits)
            each.full = each.next_full(len(hits), size)
        return count

    def _chunk(self, step: Step, each: Sequence, count: int) -> int:
        """Add *count* positions of a prompt to *step*."""
        samples = each.computed + count == each.length
        step.chunks.append(Slice(each, each.computed, count, samples))
        self._reading = None if samples else each
        return count

    def _grow(self, each: Sequence, positions: int, step: Step) -> bool:
        """Give *each* room for *positions*, if need be at the cost of the youngest; False if that is itself."""
        size = self.limits.block_size
        lacking = -(-positions // size) - len(each.blocks)
        while lacking > self.pool.available:
            victim = self.running[-1]
            self._preempt(victim, step)
            if victim is each:
                return False
        each.blocks += self.pool.allocate(max(0, lacking))
        each.room = len(each.blocks) * size
        return True

    def _preempt(self, victim: Sequence, step: Step) -> None:
        """Take everything from the youngest but its tokens, and let it wait in front."""
        self.running.pop()
        if self.pool.prefix_cache:
            self.publish(victim)
        self._drop(victim)
        victim.sent = 0
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)
        step.preempted.append(victim)

    def _drop(self, each: Sequence) -> None:
        self.pool.release(each.blocks)
        each.blocks = []
        each.computed = each.room = 0
        if each is self._reading:
            self._reading = None

    def finish(self, step: Step, tokens: Many[int] | None = None, gained: Many[int] | None = None) -> list[Sequence]:
        """Say that *step* is done; returns the sequences that ended with it, in its order.

        tokens  the sampled id of each slice that samples, in the order of the slices (real engine).
        gained  tokens that each decode gained, 1 to draft + 1 (speculative decoding); all gain one without.
        """
        assert tokens is None or gained is None, "drafts are simulated by length only"
        ended: list[Sequence] = []
        sampled = iter(tokens) if tokens is not None else None
        if gained is None:
            self._one_each(step, ended)
        else:
            self._several(step, gained, ended)
        if sampled is not None:
            ended = [each for each in step.decodes if self._take(each, next(sampled))]
        for chunk in step.chunks:
            self._read(chunk, next(sampled) if sampled is not None and chunk.samples else None)
            if chunk.sequence.generated >= chunk.sequence.most:
                ended.append(chunk.sequence)
        return self.retire(ended) if ended else ended

    def _one_each(self, step: Step, ended: list[Sequence]) -> None:
        """Every decode has one position and one token more; the loop that a decode step spends its time in."""
        for each in step.decodes:
            computed = each.computed + 1
            each.computed = computed
            if computed >= each.full:
                self.publish(each)
            generated = each.generated + 1
            each.generated = generated
            if generated >= each.most:
                ended.append(each)

    def _several(self, step: Step, gained: Many[int], ended: list[Sequence]) -> None:
        """Every decode has as many more as were accepted, but no more than it wanted."""
        for each, accepted in zip(step.decodes, gained, strict=True):
            gain = min(accepted, each.most - each.generated)
            each.computed += gain
            each.generated += gain
            if each.computed >= each.full:
                self.publish(each)
            if each.generated >= each.most:
                ended.append(each)

    def _read(self, chunk: Slice, token: int | None) -> None:
        """A *chunk* of a prompt is in its blocks, and if it was the last, there is a token."""
        each = chunk.sequence
        if each.end is not None:
            return
        each.computed = chunk.start + chunk.count
        if each.computed >= each.full:
            self.publish(each)
        each.generated += chunk.samples
        if token is not None:
            self._take(each, token)

    def _take(self, each: Sequence, token: int) -> bool:
        """Append a sampled *token*; whether *each* has ended, by a stop token or by its length."""
        assert each.tokens is not None, f"request {each.id} has no token ids"
        if each.end is None:
            each.tokens.append(token)
            if token in each.request.stop:
                each.most = each.generated
                each.end = End.STOP
        return each.generated >= each.most

    def publish(self, each: Sequence) -> None:
        """Name the blocks of *each* that are full and have no name yet."""
        size = self.limits.block_size
        last = each.computed // size
        names = each.names(last, size)
        for index in range(each.published, last):
            self.pool.publish(each.blocks[index], names[index])
        each.published = last
        each.full = each.next_full(last, size)

    def retire(self, ended: list[Sequence]) -> list[Sequence]:
        """Release what the *ended* sequences hold; returns those that were not aborted meanwhile."""
        done = [each for each in ended if each.end is not End.ABORTED]
        for each in done:
            if each.end is None:
                each.end = End.LENGTH if each.generated >= each.request.output else End.CONTEXT
            self.pool.release(each.blocks)
            each.blocks = []
        self.running = [each for each in self.running if each.end is None]
        return done

    def abort(self, id: int) -> bool:
        """Forget request *id*, also in the middle of a step; False if it is not here."""
        for queue in (self.running, self.waiting):
            for each in queue:
                if each.id == id:
                    queue.remove(each)
                    self._drop(each)
                    each.end = End.ABORTED
                    each.full = NEVER  # it has no blocks that the step under way could publish
                    return True
        return False

    def check(self) -> None:
        """AssertionError unless, between two steps, every block is accounted for and every table fits its sequence."""
        self.pool.check([each.blocks for each in self.running])
        for each in self.running:
            assert each.room == len(each.blocks) * self.limits.block_size >= each.computed, f"request {each.id}: table"
            assert each.length - each.computed == 1 or each is self._reading, f"request {each.id}: positions"
        assert not any(each.blocks for each in self.waiting), "a waiting sequence holds blocks"
