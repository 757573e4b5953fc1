"""Source text of the one kernel of a chain, for a CPU (numba) and for a GPU (Triton).

Both do their arithmetic in fp32 whatever the tensors hold, and round once, when they store.
"""

from simulator.dtypes import DType
from workloads.compiler.fusion.chain import Chain
from workloads.compiler.fusion.operations import OPERATIONS

# error_model: a division by zero gives infinity as on a GPU; the check that raises would be a branch in the loop.
# LLVM turns a loop into vector instructions only if it calls nothing, and the exp of the C library is a call.
_EXPONENTIAL = '''
@njit(fastmath=True, error_model="numpy", inline="always")
def exponential(x):
    """e^x by 2^n * e^r with |r| <= ln(2) / 2 and a polynomial for e^r, error below 2e-7; no call, no branch."""
    x = min(max(x, LOWEST), HIGHEST)
    n = np.floor(x * LOG2_E + HALF)
    r = x - n * LN2_HIGH - n * LN2_LOW
    p = C5 + r * (C4 + r * (C3 + r * (C2 + r * (C1 + r * C0))))
    return (p * r * r + r + ONE) * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
'''
_BF16 = '''
@njit(fastmath=True, error_model="numpy", inline="always")
def widen(x):
    """The number whose upper half is x: bf16, which numpy has no type for, comes as int16."""
    return np.int32(np.int32(x) << np.int32(16)).view(np.float32)


@njit(fastmath=True, error_model="numpy", inline="always")
def narrow(x):
    """The nearest bf16, ties to even."""
    bits = np.float32(x).view(np.int32)
    return np.int16((bits + np.int32(0x7FFF) + ((bits >> np.int32(16)) & np.int32(1))) >> np.int32(16))
'''


def numba_source(chain: Chain) -> str:
    """Return a module with ``kernel(x0, x1, ..., out)`` on arrays of `rows` x `columns`, or one row of them."""
    bf16 = chain.output.dtype is DType.BF16
    body = [f"v{i} = {_load(chain, i)}" for i in range(len(chain.inputs))]
    body += _steps(chain, triton=False)
    last = f"v{len(chain.inputs) + len(chain.steps) - 1}"
    body.append(f"out[i, j] = {f'narrow({last})' if bf16 else last}")
    text = "\n".join(f"            {line}" for line in body)
    names = ", ".join(f"x{i}" for i in range(len(chain.inputs)))
    return f'''import numpy as np
from numba import njit
{_constants(chain)}{_BF16 if bf16 else ""}{_EXPONENTIAL if "exponential" in text else ""}

@njit(fastmath=True, error_model="numpy")
def kernel({names}, out):
    """{chain.text}"""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
{text}
'''


def triton_source(chain: Chain) -> str:
    """Return a module with the Triton ``kernel`` and ``launch(x0, x1, ..., out)`` on contiguous tensors."""
    names = ", ".join(f"x{i}" for i in range(len(chain.inputs)))
    rows = any(map(chain.is_row, chain.inputs))
    taken, given = ("COLUMNS: tl.constexpr, ", f"COLUMNS={chain.columns}, ") if rows else ("", "")
    lines = [
        f"v{i} = tl.load(x{i} + {'at % COLUMNS' if chain.is_row(tensor) else 'at'}, mask=inside).to(tl.float32)"
        for i, tensor in enumerate(chain.inputs)
    ]
    lines += _steps(chain, triton=True)
    last = f"v{len(chain.inputs) + len(chain.steps) - 1}"
    lines.append(f"tl.store(out + at, {last}.to(out.dtype.element_ty), mask=inside)")
    text = "\n".join(f"    {line}" for line in lines)
    return f'''import triton
import triton.language as tl


@triton.jit
def kernel({names}, out, elements, {taken}BLOCK: tl.constexpr):
    """{chain.text}"""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
{text}


def launch({names}, out):
    kernel[(triton.cdiv(out.numel(), 1024),)]({names}, out, out.numel(), {given}BLOCK=1024)
'''


def _constants(chain: Chain) -> str:
    """What numba would take for fp64 if it stood in the source as a number."""
    numbers = {"ZERO": "0", "ONE": "1", "TWO": "2"}
    if any("exponential" in OPERATIONS[step.target].numba for step in chain.steps):
        numbers |= {
            "HALF": "0.5", "LOWEST": "-87", "HIGHEST": "88", "LOG2_E": "1.44269504", "LN2_HIGH": "0.693359375",
            "LN2_LOW": "-2.12194440e-4", "C0": "1.9875691500e-4", "C1": "1.3981999507e-3", "C2": "8.3334519073e-3",
            "C3": "4.1665795894e-2", "C4": "1.6666665459e-1", "C5": "5.0000001201e-1",
        }  # fmt: skip
    return "".join(f"\n{name} = np.float32({value})" for name, value in numbers.items()) + "\n"


def _load(chain: Chain, index: int) -> str:
    element = f"x{index}[{'0, ' if chain.is_row(chain.inputs[index]) else 'i, '}j]"
    return f"widen({element})" if chain.output.dtype is DType.BF16 else element


def _steps(chain: Chain, *, triton: bool) -> list[str]:
    lines = []
    for index, step in enumerate(chain.steps):
        known = OPERATIONS[step.target]
        form = known.triton if triton else known.numba
        lines.append(f"v{len(chain.inputs) + index} = {form.format(*(f'v{each}' for each in step.operands))}")
    return lines
