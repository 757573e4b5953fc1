"""The graph below a tensor, as text for Graphviz, as a networkx graph, and as a picture.

Draw before backward, which frees the graph.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import OutputError
from simulator.output import check_writable
from workloads.autograd.engine import Node, Origin, reachable
from workloads.autograd.tensor import Tensor

if TYPE_CHECKING:
    import networkx as nx

_COLOURS = {"leaf": "#f4d9a0", "result": "#cfe0f3"}
_FORMATS = (".png", ".svg", ".pdf")


def to_networkx(root: Tensor) -> "nx.DiGraph[int]":
    """Return leaves and results, numbered from 0 in the order in which they were made, edges from cause to result.

    Nodes carry ``label`` (name or operator, and shape), ``leaf``, and ``layer``: the longest way from a leaf.
    """
    import networkx as nx  # noqa: PLC0415  a tenth of a second that only drawing needs

    origins = sorted(reachable(root.origin), key=lambda each: each.number if isinstance(each, Node) else -1)
    numbers = {id(each): number for number, each in enumerate(origins)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    for number, each in enumerate(origins):
        parents = [numbers[id(parent)] for parent in (each.parents if isinstance(each, Node) else ())]
        layer = max((graph.nodes[parent]["layer"] + 1 for parent in parents), default=0)
        graph.add_node(number, label=_label(each), leaf=not isinstance(each, Node), layer=layer)
        graph.add_edges_from((parent, number) for parent in parents)
    return graph


def _label(origin: Origin) -> str:
    what = origin.operator if isinstance(origin, Node) else origin.name or "parameter"
    size = " x ".join(str(each) for each in origin.shape)
    return f"{what}\n{size or 'scalar'}"


def dot(root: Tensor) -> str:
    """Return the graph in the language of Graphviz: ``dot -Tsvg`` draws it.

    >>> print(dot(Tensor([1.0, 2.0], requires_grad=True, name="x").sum()))
    digraph {
      rankdir=LR
      n0 [label="x\\n2" shape=box]
      n1 [label="sum\\nscalar" shape=ellipse]
      n0 -> n1
    }
    """
    graph = to_networkx(root)
    lines = ["digraph {", "  rankdir=LR"]
    for number, node in graph.nodes(data=True):
        text = node["label"].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'  n{number} [label="{text}" shape={"box" if node["leaf"] else "ellipse"}]')
    lines += [f"  n{parent} -> n{child}" for parent, child in graph.edges]
    return "\n".join([*lines, "}"])


def draw(root: Tensor, path: str | Path) -> None:
    """Draw the graph, leaves at the left, as .png, .svg or .pdf; OutputError says why *path* cannot be written."""
    import matplotlib as mpl  # noqa: PLC0415
    import networkx as nx  # noqa: PLC0415

    target = Path(path)
    if target.suffix not in _FORMATS:
        raise OutputError(f"cannot draw {target}: the name must end in {', '.join(_FORMATS)}")
    check_writable(target)
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    graph = to_networkx(root)
    place = nx.multipartite_layout(graph, subset_key="layer")
    colours = [_COLOURS["leaf" if node["leaf"] else "result"] for _, node in graph.nodes(data=True)]
    layers = 1 + max(node["layer"] for _, node in graph.nodes(data=True))
    figure, axes = plt.subplots(figsize=(max(4.0, 1.4 * layers), 4))
    labels = {number: node["label"] for number, node in graph.nodes(data=True)}
    nx.draw_networkx(
        graph, place, ax=axes, labels=labels, node_color=colours, node_size=1600, font_size=6, node_shape="s",
        edge_color="#888888",
    )  # fmt: skip
    axes.set_axis_off()
    figure.savefig(target, bbox_inches="tight")
    plt.close(figure)
