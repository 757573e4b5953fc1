"""The dialect as text: what cannot be read or is not valid is reported with its line and column."""

import re
from io import StringIO
from typing import Any

from xdsl.context import Context
from xdsl.dialects import affine, arith, func, linalg, memref, scf
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Span

from simulator.errors import SpecError
from workloads.compiler.dialect.ops import LAB

# Faults that name what is wrong: its first use is at fault, because reading ends there or nothing ever defines it.
_NAMED = re.compile(r"values used but not defined: \[(%[\w.$-]+)|Operation (\S+) is not registered")


def context() -> Context:
    """Return a context that knows the dialect and everything that it is lowered to."""
    found = Context()
    for dialect in (
        Builtin, LAB, func.Func, linalg.Linalg, memref.MemRef, scf.Scf, arith.Arith, affine.Affine,
    ):  # fmt: skip
        found.load_dialect(dialect)
    return found


class _Parser(Parser):
    """A parser that remembers where each operation begins, for faults that are found only when all is read."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(context(), text, name)
        self.begins: dict[Operation, Span[Any]] = {}
        self.begin = self._current_token.span

    def parse_operation(self) -> Operation:
        """Read one operation and note its place."""
        begin = self.begin = self._current_token.span
        found = super().parse_operation()
        self.begins[found] = begin
        return found


def parse(text: str, name: str = "text") -> ModuleOp:
    """Return the module that *text* describes; SpecError with line and column if it is malformed or not valid."""
    parser = _Parser(text, name)
    try:
        module = parser.parse_module()
    except ParseError as error:
        raise SpecError(f"{_place(_culprit(error, parser.begin))}: {_first_line(error.msg)}") from None
    except VerifyException as error:
        raise SpecError(f"{name}: {_first_line(str(error))}") from None
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            where = _place(parser.begins[op]) if op in parser.begins else name
            raise SpecError(f"{where}: {_first_line(str(error))}") from None
    return module


def show(module: Operation) -> str:
    """Return *module* as text that `parse` reads."""
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue() + "\n"


def _place(span: Span[Any]) -> str:
    return str(span.get_location())


def _culprit(error: ParseError, begin: Span[Any]) -> Span[Any]:
    """Where the fault is: xDSL notices some only behind it, and an undefined value at the end of everything.

    begin  of the operation that was being read.
    """
    if error.msg.startswith("Shape mismatch in dense literal"):
        return begin
    noticed: Span[Any] = error.span
    named = _NAMED.match(error.msg)
    if named is None:
        return noticed
    used = re.search(re.escape(named[named.lastindex or 0]) + r"(?![\w.$-])", str(noticed.input.content))
    return Span(used.start(), used.end(), noticed.input) if used else noticed


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0]
