"""Measured Megatron steps on A100 and the paper's memory, within five per cent."""

from pathlib import Path

import pytest

from simulator.errors import SpecError
from workloads.megatron.figure1 import memory_rows
from workloads.megatron.rows import DATA, predict, read_rows

STEPS = read_rows(DATA / "batch_time.csv")


@pytest.mark.parametrize("number", [0, 1, 3])  # the fourth takes as long again as these, and adds no other pass
def test_a_measured_step(number: int) -> None:
    row = STEPS[number]
    assert predict(row).seconds == pytest.approx(row.seconds, rel=0.05)


def test_memory_of_figure_1(tmp_path: Path) -> None:
    text = (DATA / "fig1_memory.csv").read_text().splitlines()
    small = tmp_path / "fig1.csv"
    small.write_text("\n".join(text[:4]) + "\n")  # 22B, and 175B without recomputation
    found = memory_rows(small)
    assert [each.name for each in found] == ["megatron-22B", "megatron-22B", "gpt3-175B"]
    for each in found:
        assert each.counted == pytest.approx(each.printed, rel=0.05)


def test_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    lines = (DATA / "batch_time.csv").read_text().splitlines()
    file.write_text(f"{lines[0]}\n{lines[1].replace(',full,ar', ',some,ar')}\n")
    with pytest.raises(SpecError) as error:
        read_rows(file)
    assert str(error.value) == f"{file}:2: cannot read 'some'; expected the columns of batch_time.csv"
