"""Weights of 8 and 4 bits: packed, unpacked, and what that costs in bytes and in error.

A matrix [outputs, inputs] is cut along its inputs into groups of 128.  Each group has a scale and a zero, both fp16;
a weight is ``scale x q + zero`` with q in 0 .. 2^bits - 1: 4.25 and 8.25 bits a weight.  Two of four bits share a byte:
the low half is input j of the group and the high half input j + 64, so that a group unpacks into two runs in order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simulator.packing import GROUP, groups_of


@dataclass(frozen=True, slots=True)
class Packed:
    """A quantised matrix.

    data    uint8 [outputs, groups x 128 x bits / 8].
    scales  fp16 [groups, outputs], and *zeros* as well: neighbours in memory belong to neighbouring outputs.
    """

    bits: int
    data: Tensor
    scales: Tensor
    zeros: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(part.numel() * part.element_size() for part in (self.data, self.scales, self.zeros))


def pack(weight: Tensor, bits: int) -> Packed:
    """Quantise *weight* [outputs, inputs] from the smallest to the largest value of each group, to the nearest step."""
    outputs, inputs = weight.shape
    groups = groups_of(inputs)
    padded = torch.nn.functional.pad(weight.float(), (0, groups * GROUP - inputs), mode="constant")
    cut = padded.view(outputs, groups, GROUP)
    low, high = cut.amin(2), cut.amax(2)
    scales, zeros = ((high - low) / (2**bits - 1)).half(), low.half()
    step = torch.where(scales > 0, scales, torch.ones_like(scales)).float()
    codes = ((cut - zeros.float()[..., None]) / step[..., None]).round().clamp(0, 2**bits - 1).to(torch.uint8)
    if bits == 4:
        codes = codes[..., : GROUP // 2] | codes[..., GROUP // 2 :] << 4
    return Packed(bits, codes.reshape(outputs, -1), scales.t().contiguous(), zeros.t().contiguous())


def unpack(packed: Packed, inputs: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the matrix [outputs, inputs] that *packed* stands for."""
    outputs, groups = packed.data.shape[0], packed.scales.shape[0]
    codes = packed.data.view(outputs, groups, -1)
    if packed.bits == 4:
        codes = torch.cat((codes & 15, codes >> 4), dim=2)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = codes.to(wide) * packed.scales.t()[..., None].to(wide) + packed.zeros.t()[..., None].to(wide)
    return values.view(outputs, -1)[:, :inputs].to(dtype)


def expected_rms(packed: Packed) -> float:
    """Return the root mean square error of weights that fall anywhere between two steps: step / sqrt(12)."""
    return float((packed.scales.double().square().mean() / 12).sqrt())
