"""The predicted ladder beside the measured one: times, bytes, order."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from scipy.stats import spearmanr

from simulator.errors import SpecError
from simulator.hardware import Chip
from workloads.gemm.geometry import SECTOR
from workloads.gemm.predict import Prediction, ladder

SIZES = (4096, 8192)  # of the device run
_BIG = 10e6  # bytes of DRAM above which a count is compared


@dataclass(frozen=True, slots=True)
class Row:
    """One step at one size; *seconds*, *dram* and *l2* bytes as measured, None where they were not."""

    prediction: Prediction
    seconds: float | None
    dram: float | None
    l2: float | None

    @property
    def error(self) -> float | None:
        """Relative error of the predicted time."""
        return None if self.seconds is None else self.prediction.time / 1e12 / self.seconds - 1

    @property
    def dram_error(self) -> float | None:
        """Relative error of the predicted DRAM bytes, where they are above 10 MB."""
        return None if self.dram is None or self.dram < _BIG else self.prediction.traffic.dram / self.dram - 1

    @property
    def l2_error(self) -> float | None:
        """Relative error of the predicted bytes between L2 and cores."""
        return None if self.l2 is None else self.prediction.traffic.l2 / self.l2 - 1


def load(path: Path) -> dict[str, Any]:
    """Return what ``device-run`` wrote.  SpecError says what is wrong with the file."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot read {path}: {error}") from None
    missing = [name for name in ("provenance", *(f"ladder {size}" for size in SIZES)) if name not in found]
    if missing:
        raise SpecError(f"{path} is not a file of 'python -m workloads.gemm device-run': no {', '.join(missing)}")
    measured: dict[str, Any] = found
    return measured


def rows(chip: Chip, size: int, measured: dict[str, Any] | None) -> list[Row]:
    """Return every step at *size* cubed in bf16, beside what was measured if there is something."""
    times = (measured or {}).get(f"ladder {size}", {})
    counted = (measured or {}).get("counters", {}).get(str(size), {})
    found = []
    for each in ladder(chip, (size, size, size)):
        counts = counted.get(each.step.name, {})
        sectors = counts.get("lts__t_sectors_srcunit_tex.sum")
        parts = [counts.get(f"dram__bytes_{way}.sum") for way in ("read", "write")]
        dram = None if None in parts else sum(parts)
        l2 = None if sectors is None else sectors * SECTOR
        found.append(Row(each, times.get(each.step.name, {}).get("seconds"), dram, l2))
    return found


def order(found: Sequence[Row]) -> float:
    """Return Spearman's rank correlation of predicted and measured times; 1 if the order is the same."""
    both = [(row.prediction.time, row.seconds) for row in found if row.seconds is not None]
    return float(spearmanr(*zip(*both, strict=True)).statistic)


def mape(errors: Sequence[float | None]) -> float:
    """Return the mean of the absolute errors that there are."""
    return mean(abs(each) for each in errors if each is not None)


def facts(chip: Chip, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the comparison as numbers: relative errors, seconds, bytes."""
    result: dict[str, Any] = {"chip": chip.name, "measured_on": measured["provenance"]}
    for size in SIZES:
        found = rows(chip, size, measured)
        result[str(size)] = {
            "rank_correlation": order(found),
            "time_mape": mape([row.error for row in found]),
            "share_of_torch": measured[f"search {size}"]["duel"]["share_of_torch"],
            "steps": [
                {
                    "step": row.prediction.step.name,
                    "bound": str(row.prediction.bound),
                    "predicted_seconds": row.prediction.time / 1e12,
                    "measured_seconds": row.seconds,
                    "predicted_dram_bytes": row.prediction.traffic.dram,
                    "measured_dram_bytes": row.dram,
                    "predicted_l2_bytes": row.prediction.traffic.l2,
                    "measured_l2_bytes": row.l2,
                }
                for row in found
            ],
        }
    return result
