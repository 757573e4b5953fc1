"""What a person sees at a terminal, word for word for a run that can be added up by hand."""

import io

import pytest
from rich.console import Console

from simulator.graph import OperatorGraph
from simulator.passes.reports import PassReport, State
from simulator.result import Result
from simulator.terminal import passes_table, print_result
from tests.simulator.runs import HOSTILE, empty, on_units, run, too_large, training, two_layers
from tests.simulator.toys import GraphMaker, toy_chip

# products: 2 x 16.384 us; additions: 2 x 1.024 us; the odd one: 1 us; four gaps of 1 us; 39.816 us in all.
# infinite compute leaves 2 x 1.536 us of the products: 29.696 us (74.6 %) less, and nothing of the additions, which
# their traffic binds.  infinite bandwidth: 2 x 0.512 us of the additions and 1 us of the odd one (5.1 %) less.
# 10 % more of a resource takes 1 - 1 / 1.1 = 9.1 % off what it binds: 7.5 %, 0.9 % and 0.7 % of the run.
GOLDEN = """\
╭─ toy prefill, batch 1 of 64 tokens, bf16 ────────────────────────────────────────────────────────╮
│ on toy: checkable by hand; graph mode, by-hand model                                             │
│                                                                                                  │
│ time                   39.82 us  5 operators, one run                                            │
│ throughput   1,607,394 tokens/s  64 tokens a run                                                 │
│ MFU                        82 %  1.05 MFLOP / time / 32 GFLOP/s dense bf16 (multiply-add = 2)    │
│ DRAM use                   15 %  97.9 kB moved / time / 16 GB/s (data sheet)                     │
│ intensity           10.8 FLOP/B  the chip balances at 2 FLOP/B (bf16 peak / DRAM bandwidth)      │
│ peak memory             65.2 kB  fits in 1.05 MB, 983 kB to spare                                │
│                                                                                                  │
│ Bound by compute: with infinitely fast arithmetic the run would take 29.7 us less (75 %).        │
│ At full rate the matrix products and attention alone take 32.8 us. Faster needs more or faster   │
│ matrix cells, a narrower type, or fuller tiles.                                                  │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯

Time by bound on the critical path, and its change with more of it
bound by   time, us  share                            if infinite  if +10 %
───────────────────────────────────────────────────────────────────────────
compute      32.768   82 %  ████████████████████          -74.6 %    -7.5 %
launch        4.000   10 %  ██                            -10.0 %    -0.9 %
bandwidth     3.048  7.7 %  ██                             -5.1 %    -0.7 %

Modules (share of the run)
module                    ops  time, us  share    FLOP    moved  FLOP/s  bound by
──────────────────────────────────────────────────────────────────────────────────
blocks.*.up x2              2    32.768   82 %  1.05 M  49.2 kB    32 G  compute
blocks.* x2                 2     2.048  5.1 %  8.19 k  32.8 kB     4 G  bandwidth
(top level)                 1     1.000  2.5 %            16 kB          bandwidth
(gaps between operators)          4.000   10 %                           launch

Most expensive operators, identical ones together
operator           size      time, us  share  FLOP/s    B/s  bound by
──────────────────────────────────────────────────────────────────────
blocks.*.up/mm x2  64x64x64    32.768   82 %    32 G  1.5 G  compute
blocks.*/add x2    4096         2.048  5.1 %     4 G   16 G  bandwidth
custom.odd         8000         1.000  2.5 %           16 G  bandwidth

Device memory at the peak, during blocks.0/aten.add
what          bytes  share
──────────────────────────
input       32.4 kB   50 %
weight      16.4 kB   25 %
activation  16.4 kB   25 %
all         65.2 kB

The largest of it by name
name  role        tensors    bytes  share
─────────────────────────────────────────
rest  input             1    16 kB   25 %
x0    input             1  8.19 kB   13 %
w0    weight            1  8.19 kB   13 %
y0    activation        1  8.19 kB   13 %
z0    activation        1  8.19 kB   13 %
x2    input             1  8.19 kB   13 %
w2    weight            1  8.19 kB   13 %

Operators without a rule, timed by their bytes
operator    runs  bytes  share of bytes
───────────────────────────────────────
custom.odd     1  16 kB            16 %
"""


def printed(result: Result, width: int = 100, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_result(result, Console(file=file, width=width, highlight=False))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_two_layers_word_for_word() -> None:
    assert "\n".join(line.rstrip() for line in printed(run(two_layers())).splitlines()) + "\n" == GOLDEN


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("graph", [two_layers(), training(), two_layers(HOSTILE)])
def test_no_line_is_longer_than_the_terminal_and_no_cell_is_cut(width: int, graph: OperatorGraph) -> None:
    lines = printed(run(graph), width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("width", [60, 100])
def test_what_a_pass_made_gives_way_to_its_numbers(width: int) -> None:
    before, after = State(2_319, 162 * 10**9, 124_600 * 10**6, "compute"), State(1, 1, 10**6, "launch")
    report = PassReport("decompose", before, after, (("blocks.*." + "long_" * 20 + "name", 32),), ())
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(passes_table([report], width))
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["after", "kernels", "bytes", "time,", "ms", "bound", "by", "made", "most"]
    assert lines[2].split() == ["(as", "traced)", "2,319", "162", "GB", "124.60", "compute"]
    assert lines[3].endswith("…")
    assert max(map(len, lines)) <= width


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    assert "moved" not in printed(run(two_layers()), 80).split("Modules", 1)[1].split("Most", 1)[0]


def test_a_long_name_keeps_its_end_and_its_count() -> None:
    maker = GraphMaker()
    for layer in range(3):
        maker.matmul(4, 4, 4, module=f"model.{'very_' * 20}long.layers.{layer}.projection")
    text = printed(run(maker.graph, toy_chip()), 80)
    assert any(line.startswith("…") and "layers.*.projection x3" in line for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 80


def test_a_training_step_is_split_by_phase() -> None:
    text = printed(run(training(), toy_chip()))
    assert "Phases\n" in text
    assert "forward, us  backward, us  optimizer, us" in text


def test_a_run_that_does_not_fit_says_so_first() -> None:
    text = printed(too_large())
    assert "does not fit in 1.05 MB: 1.05 MB too much" in text
    assert "Does not fit: 1.05 MB more than the 1.05 MB of the device memory." in text


def test_an_empty_graph_prints_its_memory_and_nothing_else() -> None:
    text = printed(run(empty()))
    assert "Nothing to run" in text
    assert "Modules" not in text
    assert "weight" in text


def test_names_are_no_console_markup() -> None:
    maker = GraphMaker()
    maker.matmul(4, 4, 4, module="[bold]x[/bold]")
    assert "[bold]x[/bold]" in printed(run(maker.graph, toy_chip()))


def test_units_side_by_side_say_what_their_shares_are_of() -> None:
    assert "Modules (share of the work of all units)" in printed(on_units(two_layers()))


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert "####" in printed(run(two_layers()), encoding="ascii")


def test_piped_output_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(run(two_layers()))
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) == 100
