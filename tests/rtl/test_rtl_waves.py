"""The timing diagrams in rtl/diagrams are drawn from a real recording, and are up to date."""

from pathlib import Path

import pytest

from hw_models.rtl_bench.bench import PHASES
from hw_models.rtl_bench.cases import Top
from hw_models.rtl_bench.tools import RTL
from tests.rtl.waves import diagrams, record, samples

REDRAW = "python -m tests.rtl.waves --diagrams rtl/diagrams"

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("dataflow", ["ws", "os"])
def test_diagrams_show_what_the_rtl_does(dataflow: str, tmp_path: Path) -> None:
    top = Top(dataflow, 3, 3)
    record(top, (4, 3, 6), tmp_path / "waves.vcd")
    drawn = diagrams(top, tmp_path / "waves.vcd")
    assert len(drawn) == (6 if dataflow == "ws" else 5)
    for name, text in drawn.items():
        assert (RTL / "diagrams" / name).read_text() == text, (
            "run: python -m tests.rtl.waves ws (and os) --diagrams rtl/diagrams"
        )


def test_a_recording_holds_the_phases_of_the_model(tmp_path: Path) -> None:
    # 3 x 3, 4 x 3 x 6: two tiles of 4 rows: preload 3, fill 2, stream 8, drain 3; then the same with stalls.
    top = Top("ws", 3, 3)
    record(top, (4, 3, 6), tmp_path / "waves.vcd")
    phases = [PHASES[row["phase"]] for row in samples(tmp_path / "waves.vcd", top)]
    busy = [phase for phase in phases if phase != "idle"]
    assert busy[:16] == ["preload"] * 3 + ["fill"] * 2 + ["stream"] * 8 + ["drain"] * 3
    assert busy.count("stream") == 16
    assert "stall" in busy[16:]
