"""docs/figures.py: the figures show what is kept of them, and a figure that shows something else is found."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"


def script() -> Any:
    spec = spec_from_file_location("figures", DOCS / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIGURES = script()


@pytest.mark.parametrize("lab", FIGURES.LABS)
def test_a_lab_shows_what_is_kept(lab: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert FIGURES.main(["--check", lab]) == 0, capsys.readouterr().err


def test_every_kept_figure_is_drawn_and_every_picture_is_kept() -> None:
    kept = {path.stem for path in (DOCS / "data" / "figures").glob("*.json")}
    drawn = {path.stem for path in (DOCS / "images").glob("lab*.png")}
    assert kept == drawn


def two_lines(second: float) -> Figure:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([1, 2], [10.0, second], label="time")
    axes.bar(["a", "b"], [1.0, 2.0])
    axes.imshow([[1.0, float("nan")]])
    axes.stackplot([0, 1], [[1.0, 2.0], [3.0, 4.0]], labels=["one", "two"])
    axes.set_xlabel("bytes")
    axes.set_title("two", loc="left")
    return figure


def test_another_number_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIGURES, "KEPT", tmp_path)
    (tmp_path / "two.json").write_text(json.dumps(FIGURES.shown(two_lines(20.0))))
    assert FIGURES.check("two", two_lines(20.0)) == []
    assert FIGURES.check("two", two_lines(20.001)) == []  # 5e-5 of it: another version of numpy
    assert FIGURES.check("two", two_lines(20.1)) == ["two [0] series[0] y[1]: was 20, now 20.1"]
    assert FIGURES.check("three", two_lines(20.0)) == ["three: nothing is kept of it; run docs/figures.py"]


def test_all_kinds_of_marks_are_kept() -> None:
    (axes,) = FIGURES.shown(two_lines(20.0))
    assert (axes["title"], axes["x"]) == ("two", "bytes")
    line, bars, *areas, image = axes["series"]
    assert line == {"line": "time", "x": [1.0, 2.0], "y": [10.0, 20.0]}
    assert bars["bounds"] == [[-0.4, 0.0, 0.8, 1.0], [0.6, 0.0, 0.8, 2.0]]
    assert [each["area"] for each in areas] == ["one", "two"]
    assert image["image"] == [[1.0, None]]


def test_a_lab_without_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        FIGURES.main(["3"])
    assert "lab 3: has no figures (those that have: 4, 6, 7, 8, 9, 10, 11)" in capsys.readouterr().err
