"""The measurements that come with the project: which chip they are of, and whether any constant was fitted to them."""

from dataclasses import dataclass
from pathlib import Path

_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Measurements:
    """One table: *path*, the file with the *models* of its steps, and what of it constants were *fitted* to."""

    path: Path
    models: Path | None = None
    fitted: str = "nothing"

    @property
    def name(self) -> str:
        """Folder and file, as ``h200/ops.csv``."""
        return f"{self.path.parent.name}/{self.path.name}"


def measurements(chip: str) -> tuple[Measurements, ...]:
    """All tables of *chip*, those with fitted rows first; none if nobody has measured it."""
    return _KNOWN.get(chip, ())


def measured_chips() -> tuple[str, ...]:
    """Names of the chips that come with measurements."""
    return tuple(_KNOWN)


_MODELS = _DATA / "h200" / "user_models.py"
_KNOWN = {
    "h200": (
        Measurements(_DATA / "h200" / "ops.csv", fitted="all rows"),
        Measurements(_DATA / "h200" / "models.csv", _MODELS, fitted="three constants"),
        Measurements(_DATA / "h200" / "energy.csv", _MODELS, fitted="four rows"),
        Measurements(_DATA / "h200-heldout" / "ops.csv"),
        Measurements(_DATA / "h200-heldout" / "models.csv", _MODELS, fitted="three rates"),
    ),
    "a100": (
        Measurements(_DATA / "a100" / "gemm.csv", fitted="half of the rows"),
        Measurements(_DATA / "a100" / "attention_context.csv", fitted="half of the rows"),
        Measurements(_DATA / "a100" / "attention_generation.csv", fitted="half of the rows"),
    ),
}
