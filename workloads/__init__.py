"""The lab models and kernels.  Importing this loads no torch; `build` does, when it is called."""

from typing import TYPE_CHECKING

from workloads.gpt.presets import preset, preset_names

if TYPE_CHECKING:
    from workloads.program import Program

__all__ = ["build", "preset", "preset_names"]


def build(
    name: str, phase: str = "prefill", batch: int = 1, seq: int | None = None, context: int | None = None
) -> "Program":
    """Return one step of the preset *name* on the meta device; see `workloads.gpt.program.program`."""
    config = preset(name)
    from workloads.gpt.program import program  # noqa: PLC0415  torch takes a second to load

    return program(config, phase, batch, seq, context)
