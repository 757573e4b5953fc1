"""The dialect of lab 9: text, verifier, folding, rewrites, lowering and execution."""

import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import SpecError, UsageError
from workloads.compiler.dialect import canonicalise, parse, run, show, to_linalg, to_loops
from workloads.compiler.dialect.text import context

EVERYTHING = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<3x2xf32>) -> (tensor<2x2xf32>, tensor<3x2xf32>) {
  %zero = lab.constant dense<0.0> : tensor<2x3xf32>
  %row = lab.constant dense<[1.5, 0.1, -3.0]> : tensor<3xf32>
  %a = lab.add %x, %zero : tensor<2x3xf32>, tensor<2x3xf32>
  %b = lab.mul %a, %row : tensor<2x3xf32>, tensor<3xf32>
  %c = lab.sub %b, %x : tensor<2x3xf32>, tensor<2x3xf32>
  %d = lab.relu %c : tensor<2x3xf32>
  lab.print %d : tensor<2x3xf32>
  %e = lab.matmul %d, %y : tensor<2x3xf32>, tensor<3x2xf32> -> tensor<2x2xf32>
  %f = lab.transpose %d : tensor<2x3xf32> -> tensor<3x2xf32>
  lab.return %e, %f : tensor<2x2xf32>, tensor<3x2xf32>
}
"""
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
Y = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def body(*lines: str, given: str = "%x: tensor<2x3xf32>", gives: str = "tensor<2x3xf32>") -> str:
    inner = "\n".join(f"  {line}" for line in lines)
    return f"func.func @main({given}) -> {gives} {{\n{inner}\n}}\n"


def filecheck(text: str, *checks: str) -> None:
    """Each of *checks* has to stand in *text* below the one before; one that begins with ``NOT`` nowhere."""
    at = 0
    for check in checks:
        if check.startswith("NOT "):
            assert check.removeprefix("NOT ") not in text
            continue
        found = re.search(re.escape(check).replace(re.escape("%_"), r"%\w+"), text[at:])
        assert found, f"{check!r} is not in\n{text[at:]}"
        at += found.end()


def canonical(text: str) -> str:
    module = parse(text)
    canonicalise(module, context())
    return show(module)


def test_text_to_module_and_back() -> None:
    module = parse(EVERYTHING)
    again = parse(show(module))
    assert show(again) == show(module)
    assert again.is_structurally_equivalent(module)


@pytest.mark.parametrize("lower", [to_linalg, lambda module: to_loops(to_linalg(module))])
def test_lowered_text_can_be_read_too(lower) -> None:  # type: ignore[no-untyped-def]
    lowered = lower(parse(EVERYTHING))
    assert show(parse(show(lowered))) == show(lowered)


def test_numbers_survive_the_text() -> None:
    values = np.random.default_rng(0).standard_normal(64).astype(np.float32) * np.float32(1e-3)
    listed = ", ".join(f"{each:.9e}" for each in values)
    text = body(f"%0 = lab.constant dense<[{listed}]> : tensor<64xf32>", "lab.return %0 : tensor<64xf32>",
                given="", gives="tensor<64xf32>")  # fmt: skip
    assert (run(parse(show(parse(text))))[0] == values).all()


def test_every_level_computes_the_same() -> None:
    module = parse(EVERYTHING)
    linalg = to_linalg(module)
    # by hand: x * (1.5, 0.1, -3) - x = (0.5, 1.8, -12), (-2, -4.5, 24); relu leaves (0.5, 1.8, 0), (0, 0, 24)
    kept = np.array([[0.5, 1.8, 0], [0, 0, 24]], np.float32)
    for each in (module, linalg, to_loops(linalg)):
        printed: list[npt.NDArray[np.float32]] = []
        product, turned = run(each, X, Y, printed=printed.append)
        assert product == pytest.approx(kept @ Y, rel=1e-6)  # [[5.9, 8.2], [120, 144]]
        assert turned == pytest.approx(kept.T, rel=1e-6)
        assert len(printed) == 1
        assert printed[0] == pytest.approx(kept, rel=1e-6)


def test_what_prints_goes_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    run(parse(body("lab.print %x : tensor<2x3xf32>", "lab.return %x : tensor<2x3xf32>")), X)
    assert capsys.readouterr().out == "[[ 1. -2.  3.]\n [-4.  5. -6.]]\n"


@pytest.mark.parametrize("op", ["add", "sub"])
def test_nothing_added(op: str) -> None:
    zero = "%0 = lab.constant dense<0.0> : tensor<3xf32>"
    line = f"%1 = lab.{op} %x, %0 : tensor<2x3xf32>, tensor<3xf32>"
    filecheck(canonical(body(zero, line, "lab.return %1 : tensor<2x3xf32>")), f"NOT lab.{op}", "lab.return %x")


def test_times_one_from_either_side() -> None:
    one = "%0 = lab.constant dense<1.0> : tensor<2x3xf32>"
    lines = ["%1 = lab.mul %x, %0 : tensor<2x3xf32>, tensor<2x3xf32>",
             "%2 = lab.mul %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>"]  # fmt: skip
    filecheck(canonical(body(one, *lines, "lab.return %2 : tensor<2x3xf32>")), "NOT lab.mul", "lab.return %x")


def test_what_is_not_neutral_stays() -> None:
    # zero minus x is not x, one of two numbers is not 1, and a row has not the shape of what it is added to
    lines = [
        "%0 = lab.constant dense<0.0> : tensor<2x3xf32>",
        "%1 = lab.sub %0, %x : tensor<2x3xf32>, tensor<2x3xf32>",
        "%2 = lab.constant dense<[1.0, 1.0, 2.0]> : tensor<3xf32>",
        "%3 = lab.mul %1, %2 : tensor<2x3xf32>, tensor<3xf32>",
        "%4 = lab.add %0, %row : tensor<2x3xf32>, tensor<3xf32>",
        "%5 = lab.add %3, %4 : tensor<2x3xf32>, tensor<2x3xf32>",
        "lab.return %5 : tensor<2x3xf32>",
    ]
    text = canonical(body(*lines, given="%x: tensor<2x3xf32>, %row: tensor<3xf32>"))
    filecheck(text, "lab.sub", "lab.mul", "lab.add", "lab.add", "lab.return")


def test_twice_is_once_or_not_at_all() -> None:
    lines = [
        "%0 = lab.relu %x : tensor<2x3xf32>",
        "%1 = lab.relu %0 : tensor<2x3xf32>",
        "%2 = lab.transpose %1 : tensor<2x3xf32> -> tensor<3x2xf32>",
        "%3 = lab.transpose %2 : tensor<3x2xf32> -> tensor<2x3xf32>",
        "lab.return %3 : tensor<2x3xf32>",
    ]
    text = canonical(body(*lines))
    filecheck(text, "NOT lab.transpose", "%_ = lab.relu %x", "lab.return")
    assert text.count("lab.relu") == 1


def test_constants_are_folded() -> None:
    lines = [
        "%0 = lab.constant dense<[[1.0, -2.0], [3.0, 4.0]]> : tensor<2x2xf32>",
        "%1 = lab.transpose %0 : tensor<2x2xf32> -> tensor<2x2xf32>",
        "%2 = lab.matmul %0, %1 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>",
        "%3 = lab.relu %2 : tensor<2x2xf32>",
        "lab.return %3 : tensor<2x2xf32>",
    ]
    # [1 -2; 3 4] [1 3; -2 4] = [5 -5; -5 25], and relu cuts the -5
    wanted = "dense<[[5.000000e+00, 0.000000e+00], [0.000000e+00, 2.500000e+01]]>"
    text = canonical(body(*lines, given="", gives="tensor<2x2xf32>"))
    filecheck(text, f"lab.constant {wanted}", "NOT lab.matmul", "NOT lab.transpose", "NOT lab.relu", "lab.return")
    assert text.count("lab.constant") == 1


def test_what_prints_is_kept_and_what_nobody_reads_goes() -> None:
    lines = ["%0 = lab.relu %x : tensor<2x3xf32>", "%1 = lab.mul %x, %x : tensor<2x3xf32>, tensor<2x3xf32>",
             "lab.print %0 : tensor<2x3xf32>", "lab.return %x : tensor<2x3xf32>"]  # fmt: skip
    filecheck(canonical(body(*lines)), "NOT lab.mul", "lab.relu", "lab.print", "lab.return %x")


def test_lowering_to_linalg() -> None:
    filecheck(
        show(to_linalg(parse(EVERYTHING))),
        '"memref.global"', "func.func @main(%_: memref<2x3xf32>, %_: memref<3x2xf32>)", "memref.get_global",
        "linalg.generic", "arith.addf", "affine_map<(d0, d1) -> (d1)>", "arith.mulf", "arith.subf", "arith.maximumf",
        "func.call @printMemrefF32", "linalg.fill", "linalg.matmul", "func.return", "func.func private @printMemrefF32",
        "NOT lab.", "NOT tensor<2x3xf32>, tensor",
    )  # fmt: skip


def test_lowering_to_loops() -> None:
    text = show(to_loops(to_linalg(parse(EVERYTHING))))
    filecheck(text, "scf.for", "scf.for", "memref.load", "arith.addf", "memref.store", "NOT linalg.", "NOT lab.")
    # two nested loops for each of add, mul, sub, relu, fill and transpose, three for the product
    assert text.count("scf.for") == 6 * 2 + 3


OPS = st.sampled_from(["add", "sub", "mul", "relu", "zero", "one", "turn", "row"])


@given(steps=st.lists(OPS, max_size=6), rows=st.integers(1, 3), columns=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_no_rewrite_and_no_lowering_changes_a_result(steps: list[str], rows: int, columns: int, seed: int) -> None:
    kind, turned = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}x{rows}xf32>"
    lines, last = [f"%z = lab.constant dense<0.0> : {kind}", f"%o = lab.constant dense<1.0> : {kind}"], "%x"
    for index, step in enumerate(steps):
        line = {
            "relu": f"lab.relu {last} : {kind}",
            "zero": f"lab.add %z, {last} : {kind}, {kind}",
            "one": f"lab.mul {last}, %o : {kind}, {kind}",
            "row": f"lab.add {last}, %row : {kind}, tensor<{columns}xf32>",
            "turn": f"lab.transpose %t{index} : {turned} -> {kind}",
        }.get(step, f"lab.{step} {last}, %x : {kind}, {kind}")
        lines += [f"%t{index} = lab.transpose {last} : {kind} -> {turned}"] if step == "turn" else []
        lines.append(f"%v{index} = {line}")
        last = f"%v{index}"
    text = body(*lines, f"lab.return {last} : {kind}", given=f"%x: {kind}, %row: tensor<{columns}xf32>", gives=kind)
    values = np.random.default_rng(seed).integers(-4, 4, rows * columns + columns).astype(np.float32)
    args = values[columns:].reshape(rows, columns), values[:columns]
    module = parse(text)
    wanted = run(module, *args)[0]
    canonicalise(module, context())
    linalg = to_linalg(module)
    for each in (module, linalg, to_loops(linalg)):
        assert (run(each, *args)[0] == wanted).all()


GOOD = body("%0 = lab.relu %x : tensor<2x3xf32>", "lab.return %0 : tensor<2x3xf32>")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lab.relu", "lab.rely", "f.mlir:2:8: Operation lab.rely is not registered"),
        ("lab.return %0", "lab.return %7", "f.mlir:3:14: values used but not defined: [%7]"),
        ("lab.relu %x :", "lab.relu %x ;", "f.mlir:2:20: Unexpected character: ;"),
        ("lab.relu %x", "lab.constant 3.0 : f32\n  lab.relu %x",
         "f.mlir:2:21: lab.constant takes dense<...> : tensor<...xf32>"),
        ("lab.relu %x : tensor<2x3xf32>", "lab.constant dense<[1.0]> : tensor<2x3xf32>",
         "f.mlir:2:3: Shape mismatch in dense literal. Expected [2, 3] shape from the type, but got [1] shape."),
        ("%0 = lab.relu", "%1 = lab.constant dense<1.0> : tensor<2x3xf64>\n  %0 = lab.relu",
         "f.mlir:2:3: lab.constant: tensor<2x3xf64> is no tensor of f32 with positive sizes"),
        ("lab.relu %x : tensor<2x3xf32>", "lab.matmul %x, %x : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>",
         "f.mlir:2:3: lab.matmul: [2, 3] by [2, 3]; wanted [m, k] by [k, n]"),
        ("lab.relu %x : tensor<2x3xf32>", "lab.transpose %x : tensor<2x3xf32> -> tensor<2x3xf32>",
         "f.mlir:2:3: lab.transpose: [2, 3] -> [2, 3]; wanted [m, n] -> [n, m]"),
        ("%0 = lab.relu", "%1 = lab.constant dense<1.0> : tensor<2xf32>\n"
         "  %2 = lab.add %x, %1 : tensor<2x3xf32>, tensor<2xf32>\n  %0 = lab.relu",
         "f.mlir:3:3: lab.add: [2, 3] and [2]; wanted equal shapes, or a row as long as the last axis"),
        ("-> tensor<2x3xf32>", "-> tensor<3x2xf32>",
         "f.mlir:3:3: lab.return: (tensor<2x3xf32>), but main returns (tensor<3x2xf32>)"),
    ],
)  # fmt: skip
def test_malformed_text_is_reported_with_line_and_column(old: str, new: str, message: str) -> None:
    assert show(parse(GOOD))
    with pytest.raises(SpecError) as error:
        parse(GOOD.replace(old, new), "f.mlir")
    assert str(error.value) == message


def test_arguments_that_do_not_fit() -> None:
    module = parse(GOOD)
    with pytest.raises(UsageError) as error:
        run(module, Y)
    assert str(error.value) == "main takes tensors of 2x3; got 3x2"
    with pytest.raises(UsageError) as error:
        run(module, function="other")
    assert str(error.value) == "there is no function 'other' (known: main)"


def test_only_the_dialect_can_be_lowered() -> None:
    module = parse("func.func @main() -> tensor<2xf32> {\n  %0 = arith.constant dense<1.0> : tensor<2xf32>\n"
                   "  lab.return %0 : tensor<2xf32>\n}")  # fmt: skip
    with pytest.raises(SpecError) as error:
        to_linalg(module)
    assert str(error.value) == "arith.constant cannot be lowered; wanted operations of the lab dialect"
