"""Vocabularies on disk: our own JSON, and the published formats of GPT-2 (vocab.bpe) and tiktoken (.tiktoken).

Nothing is ever downloaded: a published file is read if the user has it.
"""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.errors import SpecError, UsageError
from simulator.output import write_text
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.vocabulary import BYTES, Vocabulary, from_merges, from_ranks, gpt2_byte_order, gpt2_characters

FORMAT, VERSION = "xpusim-tokenizer", 1
_LARGEST_ID = 2**31 - 1  # encoded text is an array of int32
_GPT2_RANKS = 50256  # ranks in gpt2 and r50k_base; anything else is taken for cl100k
_GPT2_SPECIAL = {"<|endoftext|>": 50256}
_CL100K_RANKS = 100256
_CL100K_SPECIAL = {
    "<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,  # source of all of these: tiktoken 0.14, tiktoken_ext/openai_public.py
}  # fmt: skip


def check_name(path: str | Path) -> None:
    """Raise UsageError unless `load` takes a file that `save` writes to *path*: by the suffix it is to be JSON."""
    if Path(path).suffix != ".json":
        raise UsageError(f"cannot write a vocabulary to {path}: only to a name that ends in .json")


def save(vocabulary: Vocabulary, path: str | Path) -> None:
    """Write *vocabulary* as JSON: merges as pairs of ids, or the tokens of a vocabulary of ranks in base64.

    UsageError for a name that `load` would not take for JSON.
    """
    check_name(path)
    body: dict[str, Any] = {"format": FORMAT, "version": VERSION, "split": str(vocabulary.split)}
    body["special"] = dict(vocabulary.special)
    if vocabulary.ranks:
        body["ranks"] = [base64.b64encode(token).decode() for token in vocabulary.tokens]
    else:
        body["bytes"] = [token[0] for token in vocabulary.tokens[:BYTES]]
        body["merges"] = [[left, right] for left, right, _ in vocabulary.merges]
    write_text(Path(path), json.dumps(body, separators=(",", ":"), ensure_ascii=False) + "\n")


def load(path: str | Path) -> Vocabulary:
    """Return the vocabulary in the file at *path*; its suffix says in which format: .json, .bpe or .tiktoken.

    SpecError says what is wrong, and in which line or field.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path], Vocabulary]] = {".json": _json, ".bpe": _bpe, ".tiktoken": _tiktoken}
    if path.suffix not in readers:
        raise SpecError(f"{path}: not a vocabulary by its name (expected {', '.join(readers)})")
    return readers[path.suffix](path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 at byte {error.start}") from None


def _json(path: Path) -> Vocabulary:
    try:
        body = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: line {error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise SpecError(f"{path}: brackets are nested too deeply") from None
    except ValueError:  # Python reads whole numbers of 4300 digits at most
        raise SpecError(f"{path}: a number has too many digits") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise SpecError(f"{path}: format: expected {FORMAT!r}; this is no tokenizer that `train` has written")
    if body.get("version") != VERSION:
        raise SpecError(f"{path}: version: {body.get('version')!r}, but only {VERSION} can be read")
    split = _field(path, body, "split", str)
    if split not in list(Split):
        raise SpecError(f"{path}: split: unknown pattern {split!r} (known: {', '.join(Split)})")
    build = _json_ranks if "ranks" in body else _json_merges
    return _with_special(path, build(path, body, Split(split)), _field(path, body, "special", dict))


def _field(path: Path, body: dict[str, Any], name: str, kind: type) -> Any:
    if name not in body:
        raise SpecError(f"{path}: {name}: missing")
    if not isinstance(body[name], kind):
        wanted = {"str": "a text", "list": "a list", "dict": "an object"}[kind.__name__]
        raise SpecError(f"{path}: {name}: must be {wanted}")
    return body[name]


def _json_merges(path: Path, body: dict[str, Any], split: Split) -> Vocabulary:
    order = _field(path, body, "bytes", list)
    if not all(map(_whole, order)) or sorted(order) != list(range(BYTES)):
        raise SpecError(f"{path}: bytes: must be the numbers 0 to 255, each once")
    pairs = _field(path, body, "merges", list)
    for at, pair in enumerate(pairs):
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(_whole, pair))):
            raise SpecError(f"{path}: merges[{at}]: must be two token ids, got {json.dumps(pair)}")
    try:
        return from_merges(split, ((left, right) for left, right in pairs), {}, order)
    except ValueError as error:
        raise SpecError(f"{path}: merges: {error}") from None


def _json_ranks(path: Path, body: dict[str, Any], split: Split) -> Vocabulary:
    tokens = []
    for at, text in enumerate(_field(path, body, "ranks", list)):
        try:
            tokens.append(base64.b64decode(text, validate=True))
        except (TypeError, ValueError):
            raise SpecError(f"{path}: ranks[{at}]: not base64") from None
    return _ranked(path, split, tokens)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_special(path: Path, plain: Vocabulary, special: dict[str, Any]) -> Vocabulary:
    ids = list(special.values())
    for text, id in special.items():
        if not text or not _whole(id) or id < len(plain.tokens) or ids.count(id) > 1:
            raise SpecError(
                f"{path}: special: {json.dumps(text)} has id {json.dumps(id)}; "
                f"needs a text and an id of its own, {len(plain.tokens)} or more"
            )
        if id > _LARGEST_ID:
            raise SpecError(f"{path}: special: {json.dumps(text)} has id {id}; ids are int32, at most {_LARGEST_ID}")
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise SpecError(f"{path}: special: {json.dumps(text)} holds a lone surrogate, which no text in UTF-8 can")
    return Vocabulary(plain.split, plain.tokens, plain.merges, special, plain.ranks)


def _bpe(path: Path) -> Vocabulary:
    """Read GPT-2's vocab.bpe: two tokens a line, each byte written as a character that prints."""
    lines = _read(path).splitlines()
    if not lines or not lines[0].startswith("#version"):
        raise SpecError(f"{path}: line 1: expected '#version: 0.2'")
    byte_of, order = gpt2_characters(), gpt2_byte_order()
    ids = {bytes([byte]): id for id, byte in enumerate(order)}
    pairs, place = [], dict[str, int]()
    for number, line in enumerate(lines[1:], start=2):
        words = line.split(" ")
        if len(words) != 2 or not all(words) or not set(line) - {" "} <= byte_of.keys():
            raise SpecError(f"{path}: line {number}: expected two tokens, got {line!r}")
        left, right = (bytes(byte_of[char] for char in word) for word in words)
        if left not in ids or right not in ids:
            raise SpecError(f"{path}: line {number}: merges a token that no line before has made")
        if place.setdefault(line, number) != number:
            raise SpecError(f"{path}: line {number}: the merge {line!r} stands in line {place[line]} already")
        pairs.append((ids[left], ids[right]))
        ids[left + right] = BYTES + len(pairs) - 1
    return from_merges(Split.GPT2, pairs, {"<|endoftext|>": BYTES + len(pairs)}, order)


def _tiktoken(path: Path) -> Vocabulary:
    """Read tiktoken's ranks: the bytes of a token in base64 and its rank, a line each, ranks from 0 on."""
    tokens = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        token, _, rank = line.partition(" ")
        try:
            tokens.append(base64.b64decode(token, validate=True))
        except ValueError:  # binascii.Error is one; characters that are not ASCII raise a plain one
            raise SpecError(f"{path}: line {number}: not base64: {token!r}") from None
        if rank != str(number - 1):
            raise SpecError(f"{path}: line {number}: expected rank {number - 1}, got {rank!r}")
    gpt2 = len(tokens) == _GPT2_RANKS
    plain = _ranked(path, Split.GPT2 if gpt2 else Split.CL100K, tokens)
    special = _GPT2_SPECIAL if gpt2 else _CL100K_SPECIAL if len(tokens) == _CL100K_RANKS else {}
    return Vocabulary(plain.split, plain.tokens, plain.merges, special, ranks=True)


def _ranked(path: Path, split: Split, tokens: list[bytes]) -> Vocabulary:
    if len(set(tokens)) < len(tokens):
        raise SpecError(f"{path}: a token stands twice")
    known = set(tokens)
    missing = next((byte for byte in range(BYTES) if bytes([byte]) not in known), None)
    if missing is not None:
        raise SpecError(f"{path}: no token for the byte {missing:#04x}")
    return from_ranks(split, tokens, {})
