"""What is served: requests, the sequences that they become, and one step of an engine over them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.errors import UsageError
from simulator.serving.blocks import Name, chained_name

NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrives.

    arrival  picoseconds since the start.
    prompt   tokens to be read; output: tokens to be generated, at least one.
    tokens   ids of the prompt; None where only lengths are simulated.
    stop     ids that end the output early (real engine only).
    prefix   name and length of a beginning that other requests share, where there are no ids to tell.
    """

    id: int
    arrival: int
    prompt: int
    output: int
    tokens: tuple[int, ...] | None = None
    stop: frozenset[int] = frozenset()
    prefix: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.output < 1:
            raise UsageError(
                f"request {self.id}: {self.prompt} prompt and {self.output} output tokens; wanted 1 or more"
            )
        if self.tokens is not None and len(self.tokens) != self.prompt:
            raise UsageError(f"request {self.id}: {len(self.tokens)} token ids for a prompt of {self.prompt}")


class End(StrEnum):
    """Why a sequence ended."""

    LENGTH = "length"  # all tokens that were asked for
    STOP = "stop"  # a stop token
    CONTEXT = "context"  # no position left in the model's context
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in work.

    most       generated tokens at which it ends.
    tokens     ids of prompt and output so far; None where only lengths are simulated.
    computed   positions whose keys and values are in *blocks*.
    generated  output tokens so far; they survive preemption, the KV cache does not.
    blocks     block table: position p lies in blocks[p // block_size].
    room       positions that *blocks* have room for.
    published  blocks that were published, or hit.
    full       value of *computed* at which the next block is full and worth publishing.
    sent       positions whose keys and values another pool has computed and sends here.
    cached     positions that no admission had to compute: prefix hits, and those sent.
    """

    request: Request
    most: int
    tokens: list[int] | None
    computed: int = 0
    generated: int = 0
    blocks: list[int] = field(default_factory=list)
    room: int = 0
    published: int = 0
    full: int = NEVER
    sent: int = 0
    cached: int = 0
    preemptions: int = 0
    end: End | None = None
    _names: list[Name] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return self.request.prompt + self.generated

    def next_full(self, block: int, block_size: int) -> int:
        """`full`, when *block* is the next to fill: never, if no other sequence could hit it.

        Without token ids that is what lies beyond the shared prefix; it is published when the sequence is preempted.
        """
        end = (block + 1) * block_size
        shared = self.request.prefix[1] if self.request.prefix else 0
        return end if self.tokens is not None or end <= shared else NEVER

    @property
    def may_hit(self) -> bool:
        """Whether a block with its tokens may be there already: another's, or one of its own after a preemption."""
        return self.tokens is not None or self.request.prefix is not None or self.preemptions > 0

    @property
    def id(self) -> int:
        """The request's."""
        return self.request.id

    def names(self, count: int, block_size: int) -> list[Name]:
        """Names of the first *count* full blocks of its tokens.

        With token ids a name is a digest of everything up to the block's end.  Without, it is the shared prefix while
        that lasts, and then the request itself, which only finds its own blocks again after a preemption.
        """
        names = self._names
        while len(names) < count:
            index = len(names)
            if self.tokens is not None:
                parent = names[-1] if names else b""
                assert isinstance(parent, bytes)
                names.append(chained_name(parent, self.tokens[index * block_size : (index + 1) * block_size]))
            elif self.request.prefix and (index + 1) * block_size <= self.request.prefix[1]:
                names.append((self.request.prefix[0], index))
            else:
                names.append((self.request.id, index))
        return names if len(names) == count else names[:count]


@dataclass(frozen=True, slots=True)
class Slice:
    """Part of a step: *count* positions of *sequence* from *start* on; *samples*: its last logits give a token."""

    sequence: Sequence
    start: int
    count: int
    samples: bool


@dataclass(slots=True)
class Step:
    """One forward pass of the engine: *decodes* first, then *chunks* of prompts.

    width      positions of each decode: one, and the proposals of a draft model.
    preempted  sequences whose blocks were taken away to make this step possible.
    """

    width: int
    decodes: list[Sequence] = field(default_factory=list)
    chunks: list[Slice] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)

    @property
    def slices(self) -> Iterator[Slice]:
        """Every sequence of the step with its positions, decodes first; valid until the step is finished."""
        for each in self.decodes:
            yield Slice(each, each.computed, self.width, samples=True)
        yield from self.chunks

    @property
    def tokens(self) -> int:
        """Positions that are computed."""
        return len(self.decodes) * self.width + sum(chunk.count for chunk in self.chunks)

    @property
    def samples(self) -> int:
        """Rows of logits that are needed."""
        return len(self.decodes) * self.width + sum(chunk.samples for chunk in self.chunks)
