"""The loader reads what is right, and says everything that is wrong at once: what, where, got, wanted."""

from pathlib import Path

import pytest

from hw_models import chip_names, load_chip
from simulator.dtypes import DType
from simulator.errors import SpecError
from simulator.hardware import Execution

TOY = (Path(__file__).parents[2] / "hw_models" / "chips" / "systolic-toy.yaml").read_text()
REQUIRED = ("name", "description", "source", "cores", "matrix", "vector", "memory", "overheads")


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def fault(name: str | Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_chip(name)
    return str(caught.value)


def faults(text: str, without: tuple[str, ...] = ()) -> list[str]:
    """The lines that ``bad.yaml`` with *text* gives, less its first and less the missing keys in *without*."""
    first, *lines = fault(write("bad.yaml", text)).splitlines()
    assert first == "bad.yaml: not a valid chip description:"
    return [line.strip() for line in lines if line.strip() not in {f"{key}: is missing" for key in without}]


def test_a_file_becomes_a_chip_in_base_units() -> None:
    chip = load_chip(write("toy.yaml", TOY))
    assert (chip.name, chip.cores, chip.execution) == ("systolic-toy", 1, Execution.UNITS)
    assert (chip.dram_name, chip.dram.capacity, chip.dram_bandwidth) == ("dram", 2**30, 16 * 10**9)
    assert chip.matrix_peak(DType.BF16) == 32 * 10**9  # 2 x 16 cells x 1 GHz


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert load_chip(write("toy.yaml", b"\xef\xbb\xbf" + TOY.encode())).name == "systolic-toy"


def test_every_fault_is_reported_at_once_with_its_path_and_line() -> None:
    text = (
        TOY.replace("capacity: 1 GiB", "capacity: 80 Gb")
        .replace("capacity: 64 KiB", "capacity: -64 KiB")
        .replace("cores: 1", "cores: 0")
        .replace("bandwidth: 16 GB/s", "bandwidth: 16")
        .replace("execution: units", "execution: unitz")
        .replace("    scope: core", "    scop: core\n    scope: core")
        .replace("bf16: 1", "bf61: 1")
        .replace('"made up: 16 cells', '"x" # "')
    )
    assert faults(text + "cores: 3\nmatrx: 4\n") == [
        "cores (line 31): stands twice (first on line 5)",
        "cores (line 5): must be greater than 0, got 0",
        "matrix.source (line 10): needs at least 10 characters, enough to name where the numbers come from, got 'x'",
        "matrix.rate.bf61 (line 9): unknown key; did you mean 'bf16'?",
        "memory.sram.capacity (line 17): '-64 KiB' is not a quantity in B (expected the form '3.35 TB')",
        "memory.sram.scop (line 19): unknown key; did you mean 'scope'?",
        "memory.dram.capacity (line 23): '80 Gb' is not a quantity in B (expected the form '3.35 TB')",
        "memory.dram.bandwidth (line 24): needs a unit: write '16 B/s' or, say, '16 GB/s', not a bare 16",
        "execution (line 30): must be 'stream' or 'units', got 'unitz'; did you mean 'units'?",
        "matrx (line 32): unknown key; did you mean 'matrix'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("1 GiB", "0 GB", "memory.dram.capacity (line 22): must be greater than 0, got 0"),
        ("1 GiB", "0.3 B", "memory.dram.capacity (line 22): '0.3 B' is not a whole number of B"),
        ("0 ns", "3", "overheads.launch (line 27): needs a unit: write '3 us' or '3 ns', not a bare 3"),
        ("0 ns", "3 days", "overheads.launch (line 27): '3 days' is not a time "
         "(expected the form '3.1 us'; units are s, ms, us, ns, ps)"),
        ("cores: 1", "cores: 1.5", "cores (line 5): must be a whole number, got 1.5"),
        ("cores: 1", "cores: true", "cores (line 5): must be a whole number, got True"),
        ("cores: 1", "cores: [1]", "cores (line 5): must be a whole number, got a list"),
        ("cores: 1", "cores:", "cores: is missing"),
        ("cores: 1", "cores: !x 1", "cores (line 5): not a plain value: "
         "could not determine a constructor for the tag '!x'"),
        ("bf16: 1", "bf16: 0", "matrix.rate.bf16 (line 9): must be greater than 0.0, got 0"),
        ("bf16: 1", "bf16: 0.01", "matrix.rate.bf16 (line 9): less than one multiply-add a cycle in the whole array"),
        ("ws}", "wso}", "matrix.array.dataflow (line 8): must be 'ws', 'os' or 'is', got 'wso'; did you mean 'ws'?"),
        ("  rate: {bf16: 1, fp16: 1, int8: 1}\n", "", "matrix (line 6): needs macs_per_cycle, or array and rate"),
        ("{fp32: 4}", "{}", "vector.flops_per_cycle (line 13): needs the rate of one type at least"),
        ("scope: device", "scope: chip", "memory (line 15): needs exactly one level with 'scope: device', got none"),
        ("    bandwidth: 16 GB/s\n", "", "memory.dram (line 21): needs a bandwidth"),
        ("name: systolic-toy", "name: 7", "name (line 2): must be text, got 7"),
        ("execution: units", "power: 5 W", "power (line 29): must be a section of its own, "
         "with keys and values, got '5 W'"),
        ("execution: units", "power: {cap: 5 W}", "power.source (line 29): is missing"),
        ("execution: units", "7: x", "line 29: a key must be a word, got 7"),
        ("1 GHz\n  array: {", "&c 1 GHz\n  array: {<<: *c, ", "matrix.array (line 8): a key must be a word, got <<"),
    ],
)  # fmt: skip
def test_one_fault(old: str, new: str, expected: str) -> None:
    assert old in TOY
    assert faults(TOY.replace(old, new, 1)) == [expected]


def test_aliases_are_refused() -> None:
    assert faults("name: &x foo\ndescription: *x\n", without=REQUIRED) == [
        "description (line 1): aliases are not used in chip descriptions; write the value out"
    ]


def test_an_unknown_key_with_no_near_name_lists_them_all() -> None:
    assert faults(TOY.replace("execution: units", "power: {qqq: 1, cap: 1 W, source: made up here}")) == [
        "power.qqq (line 29): unknown key; expected one of cap, source, idle, energy"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "bad.yaml: the file is empty; expected a chip description in YAML"),
        ("# nothing\n", "bad.yaml: the file is empty; expected a chip description in YAML"),
        ("- h200\n", "bad.yaml: expected a mapping of keys to values, got a list"),
        ("h200", "bad.yaml: expected a mapping of keys to values, got a single value"),
        (b"name: caf\xe9\n", "bad.yaml: not UTF-8 text: byte 0xe9 at offset 9"),
        ("name: [1\nfoo: }\n", "bad.yaml, line 2, column 4: not valid YAML: did not find expected ',' or ']'"),
        ("name: a\n---\nname: b\n", "bad.yaml, line 2, column 1: not valid YAML: but found another document"),
        ("extends: ./bad.yaml\n", "bad.yaml: extends itself: bad.yaml -> bad.yaml"),
        ("extends: [h200]\n", "bad.yaml: extends (line 1): must be a chip or a file, got ['h200']"),
        ("extends: ./nope.yaml\n", "bad.yaml: extends (line 1): there is no file nope.yaml"),
    ],
)
def test_a_file_that_is_no_description(text: str | bytes, expected: str) -> None:
    assert fault(write("bad.yaml", text)) == expected


@pytest.mark.parametrize(
    "text", ["[" * 5000, "{a: " * 5000, "a: b\x00", "a: !!python/object:os.system {b: c}", "? [a]\n: c"]
)
def test_hostile_text_is_a_spec_error(text: str) -> None:
    assert fault(write("bad.yaml", text)).startswith("bad.yaml")


def test_what_is_not_a_file(tmp_path: Path) -> None:
    assert fault("nope.yaml") == "nope.yaml: no such file"
    assert fault(tmp_path) == f"{tmp_path}: is a directory; expected a chip description, a YAML file"
    assert fault("a\0b.yaml") == r"'a\x00b.yaml': cannot be read: embedded null byte"
    assert fault("a" * 300 + ".yaml") == "a" * 300 + ".yaml: cannot be read: File name too long"
    assert (
        fault(write("big.yaml", "#" * (2**20 + 1))) == "big.yaml: 1048577 bytes; a chip description has at most 1048576"
    )


def test_a_name_that_is_no_chip() -> None:
    known = ", ".join(chip_names())
    own = "a chip description of your own is given as a path that ends in .yaml"
    assert fault("dgx-h200x").startswith(
        "unknown chip 'dgx-h200x'; dgx-h200 is a system, dgx-h200x16 would be 16 of it (known: "
    )
    assert fault("h20") == f"unknown chip 'h20'; did you mean 'h200'? (known: {known}; {own})"
    assert fault("qqqq") == f"unknown chip 'qqqq' (known: {known}; {own})"
    write("bad.yaml", "extends: h20\n")
    assert fault("bad.yaml") == (
        f"bad.yaml: extends (line 1): unknown chip 'h20'; did you mean 'h200'? "
        f"(known: {known}; a file is given as a path that ends in .yaml)"
    )


def test_extends_changes_what_is_said_and_nothing_else() -> None:
    write("fast.yaml", "extends: h100\nmemory: {hbm: {bandwidth: 6 TB/s}}\n")
    chip, base = load_chip("fast.yaml"), load_chip("h100")
    assert chip.name == "fast"  # the name of the file, if the file gives none
    assert chip.dram_bandwidth == 6 * 10**12
    assert chip.dram.capacity == base.dram.capacity
    assert (chip.matrix, chip.vector, chip.overheads) == (base.matrix, base.vector, base.overheads)


def test_extends_in_a_chain_and_from_another_folder() -> None:
    Path("parts").mkdir()
    write("parts/a.yaml", "extends: h200\ncores: 100\n")
    write("parts/b.yaml", "extends: ./a.yaml\npower: null\n")
    write("c.yaml", "extends: parts/b.yaml\nname: c\nlinks: null\nvector: {flops_per_cycle: {fp32: 512}}\n")
    chip = load_chip("c.yaml")
    assert (chip.name, chip.cores, chip.power, chip.links) == ("c", 100, None, None)
    assert chip.vector_peak(DType.FP32) == 512 * 100 * 1_980_000_000


def test_a_circle_of_extends_is_named() -> None:
    write("a.yaml", "extends: b.yaml\n")
    write("b.yaml", "extends: a.yaml\n")
    assert fault("a.yaml") == "a.yaml: extends itself: a.yaml -> b.yaml -> a.yaml"


def test_an_inherited_fault_names_the_file_that_it_stands_in() -> None:
    write("parent.yaml", TOY.replace("cores: 1", "cores: -1") + "cores: 2\n")
    assert fault(write("bad.yaml", "extends: parent.yaml\nyear: 0\n")).splitlines() == [
        "bad.yaml: not a valid chip description:",
        "  cores (parent.yaml, line 30): stands twice (first on line 5)",
        "  cores (parent.yaml, line 5): must be greater than 0, got -1",
        "  year (line 2): must be greater than 0, got 0",
    ]


def test_the_description_in_the_readme_is_one() -> None:
    readme = (Path(__file__).parents[2] / "hw_models" / "README.md").read_text()
    chip = load_chip(write("mine.yaml", readme.split("```yaml\n")[1].split("```")[0]))
    assert (chip.name, chip.dram.capacity, chip.power) == ("my-xpu", 192 * 10**9, None)
    assert chip.cores == load_chip("h100").cores
