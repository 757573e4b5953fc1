"""The library of systems, ways through them, and what is said about descriptions that make no sense."""

from pathlib import Path

import pytest

from hw_models import load_chip, load_system, system_names
from hw_models.interconnect.fabric import Fabric
from simulator.errors import SpecError, UsageError
from simulator.system import System


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


HEAD = "name: mine\ndescription: mine\nsource: made up for a test\nchip: h100\nlinks:\n  net:\n"
NET = HEAD + "    bandwidth: 1 GB/s\n    source: made up for a test\n"


@pytest.mark.parametrize("name", system_names())
def test_every_system_of_the_library_has_a_chip_of_the_library(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert load_chip(system.chip).name == system.chip


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "dgx-h200", "tpu-v5e-pod", "tpu-v5p-pod"])
def test_links_of_a_system_are_those_of_its_chip(name: str) -> None:
    system = load_system(name)
    chip, (_, inner) = load_chip(system.chip), system.levels[0]
    assert chip.links is not None
    ports = 1 if inner.topology == "switch" else 2 * len(inner.axes)  # a switch port bundles all links of the chip
    assert inner.bandwidth * ports == chip.links.bandwidth * chip.links.count


def test_a_name_that_ends_in_a_number_is_so_many() -> None:
    pod = load_system("dgx-h200x16")
    assert (pod.name, pod.chips, [level.members for _, level in pod.levels]) == ("dgx-h200x16", 128, [8, 16])
    assert load_system("dgx-h200x16", ["links.infiniband.bandwidth=100GB/s"]).links["infiniband"].bandwidth == 10**11


def test_in_a_pod_each_gpu_has_its_own_rail() -> None:
    fabric = Fabric(load_system("dgx-h200x64"))
    assert [wire.name for wire in fabric.route(3, 9)] == [("infiniband", "up", 0, 3), ("infiniband", "down", 1, 1)]
    # node 40 hangs on the second leaf switch, of 32 nodes with eight ports each: 256 x 50 GB/s up to the spine
    far = fabric.route(0, 320)
    assert [wire.name[1] for wire in far] == ["up", "leaf up", "leaf down", "down"]  # type: ignore[index]
    assert [wire.bandwidth // 10**9 for wire in far] == [50, 12_800, 12_800, 50]
    assert [wire.level for wire in fabric.route(8, 15)] == ["nvlink", "nvlink"]


def test_a_torus_is_crossed_axis_by_axis_the_shorter_way() -> None:
    fabric = Fabric(load_system("tpu-v5e-pod"))
    # from (0, 0) to (14, 3): two down (through the wrap), three up
    assert [wire.name[1] for wire in fabric.route(0, 14 + 3 * 16)] == ["axis 0 -"] * 2 + ["axis 1 +"] * 3  # type: ignore[index]
    open_ends = Fabric(load_system(Path("hw_models/systems/tpu-v5e-pod.yaml")))
    assert len(open_ends.route(0, 255)) == 2


def test_edges_are_crossed_by_a_shortest_way(tmp_path: Path) -> None:
    # a square with a tail: 0-1-2-3-0 and 3-4
    text = NET + "    topology: links\n    size: 5\n    edges: [[0, 1], [1, 2], [2, 3], [3, 0], [3, 4]]\n"
    fabric = Fabric(load_system(written(tmp_path, text)))
    assert [wire.name for wire in fabric.route(1, 4)] == [
        ("net", "link", 1, 0), ("net", "link", 0, 3), ("net", "link", 3, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            "topology: links\n    size: 4\n    edges: [[0, 1], [2, 3]]",
            "disconnected: member 0 reaches 2 of 4 members, and not member 2",
        ),
        ("topology: links\n    size: 2\n    edges: [[0, 2]]", "edge [0, 2] names no member; they are 0 to 1"),
        ("topology: ring\n    size: 4\n    edges: [[0, 2]]", "edges are for topology: links"),
        ("topology: torus", "a torus needs its shape, such as [16, 16]"),
        ("topology: torus\n    shape: [4, 4]\n    size: 8", "size is 8, but the shape [4, 4] has 16 members"),
        ("topology: torus\n    shape: [4, 4]\n    wrap: [true]", "wrap has 1 values for 2 axes"),
        ("topology: switch", "a switch needs its size"),
        ("topology: mesh\n    shape: [4, 4]\n    size: 16", "shape is for a torus; a mesh has a size"),
        ("topology: fat_tree\n    size: 4", "a fat tree needs leaf, the members of one leaf switch"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused(tmp_path: Path, lines: str, fault: str) -> None:
    path = written(tmp_path, f"{NET}    {lines}\n")
    with pytest.raises(SpecError) as error:
        load_system(path)
    assert str(error.value) == f"{path}: not a valid system description:\n  links.net (line 6): {fault}"


def test_all_faults_are_said_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path, HEAD + "    topology: rign\n    size: 0\n    bandwidth: 10\n    latncy: 1 us\nchips: h100\n"
    )
    with pytest.raises(SpecError) as error:
        load_system(path)
    assert str(error.value).splitlines() == [
        f"{path}: not a valid system description:",
        "  links.net.topology (line 7): must be 'ring', 'switch', 'mesh', 'torus', 'fat_tree' or 'links', got 'rign'; "
        "did you mean 'ring'?",
        "  links.net.bandwidth (line 9): needs a unit: write '10 B/s' or, say, '10 GB/s', not a bare 10",
        "  links.net.source (line 6): is missing",
        "  links.net.size (line 8): must be greater than 0, got 0",
        "  links.net.latncy (line 10): unknown key; did you mean 'latency'?",
        "  chips (line 11): unknown key; did you mean 'chip'?",
    ]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (
            "dgx-h20",
            (),
            "unknown system 'dgx-h20'; did you mean 'dgx-h200'? (known: dgx-a100, dgx-h100, dgx-h200, tpu-v5e-pod, "
            "tpu-v5p-pod, xpu-board; a system description of your own is given as a path that ends in .yaml)",
        ),
        (
            "xpu-boardx4",
            (),
            "xpu-boardx4: xpu-board cannot be repeated: its outermost level 'board' joins more than one member already",
        ),
        (
            "dgx-h200x0",
            (),
            "dgx-h200x0: not a valid system description:\n"
            "  links.infiniband.size (--set): must be greater than 0, got 0",
        ),
        (
            "dgx-h200",
            ["links.nvlnk.bandwidth=1TB/s"],
            "--set links.nvlnk.bandwidth=1TB/s: the description has no links.nvlnk; did you mean 'links.nvlink'?",
        ),
        ("dgx-h200", ["chip=h201"], "dgx-h200: chip: unknown chip 'h201'; did you mean 'h200'?"),
        (
            "dgx-h200",
            ["links.infiniband.oversubscription=nan"],
            "dgx-h200: not a valid system description:\n"
            "  links.infiniband.oversubscription (--set): must be a finite number, got 'nan'",
        ),
    ],
)
def test_wrong_names_are_answered(name: str, overrides: list[str], message: str) -> None:
    with pytest.raises(SpecError) as error:
        load_system(name, overrides)
    assert str(error.value) == message


def test_a_description_may_extend_another(tmp_path: Path) -> None:
    path = written(tmp_path, "extends: xpu-board\nlinks:\n  board:\n    topology: mesh\n    bandwidth: 4 GB/s\n")
    system = load_system(path)
    assert (system.name, system.links["board"].topology, system.links["board"].size) == ("mine", "mesh", 8)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ([0, 8], "dgx-h200 has chips 0 to 7, and no chip 8"),
        ([0, 1, 0], "the group names chip 0 twice"),
        ([], "the group names no chip"),
    ],
)
def test_groups_name_chips_that_are_there(group: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        Fabric(load_system("dgx-h200")).axes(group)


def axes_of(system: System, group: range | list[int]) -> list[tuple[str, int, bool]] | None:
    axes = Fabric(system).axes(group)
    return None if axes is None else [(axis.level, axis.length, axis.closed) for axis in axes]


def test_groups_are_seen_as_axes() -> None:
    pod, torus = load_system("dgx-h200x4"), load_system("tpu-v5e-pod")
    assert axes_of(pod, range(8)) == [("nvlink", 8, True)]
    assert axes_of(pod, range(0, 32, 8)) == [("infiniband", 4, True)]  # one rail
    assert axes_of(pod, [0, 1, 8, 9]) == [("nvlink", 2, True), ("infiniband", 2, True)]
    assert axes_of(pod, [0, 1, 8]) is None
    assert axes_of(torus, range(16)) == [("ici", 16, True)]
    assert axes_of(torus, range(4)) == [("ici", 4, False)]  # an axis wraps at its full length only


def test_the_shape_of_a_torus_can_be_set() -> None:
    torus = load_system("tpu-v5e-pod", ["links.ici.shape=[4, 8]", "links.ici.wrap=[false, true]"])
    assert (torus.chips, torus.links["ici"].wraps) == (32, (False, True))
