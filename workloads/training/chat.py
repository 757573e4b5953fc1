"""Conversations as tokens: the template, what of it carries loss, and questions that the standard library answers.

The template of one turn, where names in <| |> are single tokens::

    <|user|>What does textwrap.dedent do?<|assistant|>Remove any common leading whitespace ...<|end|>

Loss is taken where the next token is the assistant's text or its <|end|>, and nowhere else.
"""

import ast
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import UsageError
from workloads.training.packing import IGNORED, Rows
from workloads.training.tokens import ASSISTANT, END, USER, encode

_LONGEST = 600  # characters of an answer


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer."""

    user: str
    assistant: str


def prompt(question: str) -> list[int]:
    """Return the tokens after which the assistant speaks."""
    return [USER, *encode(question), ASSISTANT]


def rendered(turns: Sequence[Turn]) -> tuple[list[int], list[bool]]:
    """Return the tokens of a conversation, and for each whether it is the assistant's.

    >>> rendered([Turn("a", "b")])
    ([257, 97, 258, 98, 259], [False, False, False, True, True])
    """
    tokens: list[int] = []
    own: list[bool] = []
    for turn in turns:
        asked, answer = prompt(turn.user), [*encode(turn.assistant), END]
        tokens += asked + answer
        own += [False] * len(asked) + [True] * len(answer)
    return tokens, own


def packed_chats(conversations: Sequence[Sequence[Turn]], seq: int) -> tuple[Rows, int]:
    """Pack whole conversations into rows of *seq* positions; return the rows and how many conversations were too long.

    Each goes into the row being filled if it fits, otherwise into a new one; the rest of a row is <|end|> without loss.
    A conversation does not see where another in its row ends; it is told by <|user|>, as in use.
    Raises UsageError if not one fits.
    """
    rows: list[tuple[list[int], list[bool]]] = []
    too_long = 0
    for turns in conversations:
        tokens, own = rendered(turns)
        if len(tokens) > seq + 1:
            too_long += 1
        elif rows and len(rows[-1][0]) + len(tokens) <= seq + 1:
            rows[-1][0].extend(tokens)
            rows[-1][1].extend(own)
        else:
            rows.append((tokens, own))
    if not rows:
        raise UsageError(f"no conversation fits into --seq {seq}: {too_long} are longer")
    return _filled(rows, seq), too_long


def _filled(rows: Sequence[tuple[list[int], list[bool]]], seq: int) -> Rows:
    ids = np.full((len(rows), seq + 1), END, dtype=np.int64)
    own = np.zeros((len(rows), seq + 1), dtype=bool)
    for at, (tokens, mine) in enumerate(rows):
        ids[at, : len(tokens)] = tokens
        own[at, : len(mine)] = mine
    return Rows(ids[:, :-1].copy(), np.where(own, ids, IGNORED)[:, 1:].copy())


def library_chats(folder: Path | None = None, limit: int = 0) -> list[list[Turn]]:
    """Return one question for each documented public name of the standard library, answered by its first paragraph.

    *folder* instead of the library; at most *limit* questions, 0 for all.  Source and licence as for the corpus.
    """
    root = folder or Path(sysconfig.get_path("stdlib"))
    found: list[list[Turn]] = []
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "dist-packages", "test", "tests", "idlelib"} & set(path.parts):
            continue
        found += [[turn] for turn in _questions(path, root)]
        if limit and len(found) >= limit:
            return found[:limit]
    return found


def _questions(path: Path, root: Path) -> Iterator[Turn]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):  # old sources kept for tests of the tools
        return
    module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    if text := _answer(tree):
        yield Turn(f"What is the module {module} for?", text)
    yield from _of_body(tree.body, module)


def _of_body(body: Sequence[ast.stmt], owner: str) -> Iterator[Turn]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        name = f"{owner}.{node.name}"
        if text := _answer(node):
            asked = f"What is {name}?" if isinstance(node, ast.ClassDef) else f"What does {name} do?"
            yield Turn(asked, text)
        if isinstance(node, ast.ClassDef):
            yield from _of_body(node.body, name)


def _answer(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    paragraph = (ast.get_docstring(node) or "").split("\n\n")[0]
    text = " ".join(paragraph.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " ..."
