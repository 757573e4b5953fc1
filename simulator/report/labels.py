"""Places for the words of a plot, so that they stand on nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, radians, sin

from simulator.report.markup import Markup, tag

_CHARACTER = 6.4  # width of one, in a sans-serif of 12 units, on the generous side

Place = tuple[float, float, str]  # x, y of the baseline, and which end of the text is there: start, mid or end
_Box = tuple[float, float, float, float]


@dataclass(slots=True)
class Labels:
    """The free room between *left*, *top*, *right* and *bottom*, and what of it is taken."""

    left: float
    top: float
    right: float
    bottom: float
    taken: list[_Box] = field(default_factory=list)

    def block(self, left: float, top: float, right: float, bottom: float) -> None:
        """Keep words off this box."""
        self.taken.append((left, top, right, bottom))

    def text(self, words: str, places: Sequence[Place], style: str, needed: bool = False, angle: float = 0.0) -> Markup:
        """Write *words* at the first free one of *places*; nowhere if none is, or at the first if they are *needed*."""
        for place in places:
            box = _box(words, place, angle)
            if self._free(box):
                self.taken.append(box)
                return _text(words, place, style, angle)
        return _text(words, places[0], style, angle) if needed else Markup()

    def _free(self, box: _Box) -> bool:
        left, top, right, bottom = box
        if left < self.left or right > self.right or top < self.top or bottom > self.bottom:
            return False
        return not any(left < r and right > x and top < b and bottom > y for x, y, r, b in self.taken)


def around(x: float, y: float, radius: float) -> list[Place]:
    """Places beside a dot: right, left, on its slants, below, above.

    >>> around(100, 50, 10)[:2]
    [(115, 54, 'start'), (85, 54, 'end')]
    """
    gap, slant = radius + 5, 0.72 * radius + 6
    return [
        (x + gap, y + 4, "start"),
        (x - gap, y + 4, "end"),
        (x + slant, y + slant + 6, "start"),
        (x + slant, y - slant, "start"),
        (x - slant, y + slant + 6, "end"),
        (x - slant, y - slant, "end"),
        (x, y + gap + 10, "mid"),
        (x, y - gap, "mid"),
    ]


def _box(words: str, place: Place, angle: float) -> _Box:
    """The upright box around *words*, which start at *place* if they are turned."""
    x, y, anchor = place
    width = _CHARACTER * len(words)
    left = {"start": x, "end": x - width, "mid": x - width / 2}[anchor]
    run, rise = width * cos(radians(angle)), width * sin(radians(angle))
    return left, y - 10 + min(0.0, rise), left + run, y + 3 + max(0.0, rise)


def _text(words: str, place: Place, style: str, angle: float) -> Markup:
    x, y, anchor = round(place[0], 1), round(place[1], 1), place[2]
    turn = f"rotate({angle:.1f} {x} {y})" if angle else None
    return tag("text", words, x=x, y=y, transform=turn, class_=f"{style} {anchor}")
