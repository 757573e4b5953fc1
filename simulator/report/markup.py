"""HTML and SVG as strings that cannot forget to escape: whatever is not Markup already is escaped on its way in."""

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"meta", "input", "br", "path", "rect", "circle", "line", "polyline", "polygon"})


class Markup(str):
    """Text that is markup already; every other string is escaped when it becomes part of a page."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; ``class_`` stands for class, ``_`` in a name for ``-``, and None leaves an attribute out.

    >>> tag("td", "a < b", class_="n", data_v=3)
    '<td class="n" data-v="3">a &lt; b</td>'
    """
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """Return all parts one after another, escaped unless they are markup.

    >>> join(["<b>", Markup("<br/>")])
    '&lt;b&gt;<br/>'
    """
    return Markup("".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))


def figure(name: str, width: int, height: int, parts: Iterable[object]) -> Markup:
    """Return a plot that fills the width of the page, and can be scrolled where that is too narrow to read it."""
    plot = tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=name, class_="plot")
    return tag("div", plot, class_="scroll", tabindex=0)
