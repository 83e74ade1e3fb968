"""Draws the pictures of the documentation: each NAME.txt beside this file becomes NAME.svg.

A line of a text is one of:

    size WIDTH HEIGHT
    box NAME X Y WIDTH HEIGHT KIND | title | line | …
    arrow NAME.SIDE PLACE NAME.SIDE PLACE | label

SIDE is top, bottom, left or right; PLACE is the x of a top or bottom and the y of a left or right. An arrow is
straight, or has one corner. After a change of a text: python docs/images/draw.py
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
LINE_HEIGHT = 17  # pixels
STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px }
.page { fill: #ffffff; stroke: #d0d7de }
rect { stroke-width: 1.2 }
text { fill: #1f2328; text-anchor: middle }
.title { font-weight: 600; font-size: 14.5px }
.label { font-size: 12.5px; fill: #424a53; stroke: #ffffff; stroke-width: 5px; paint-order: stroke }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.4; marker-end: url(#head) }
#head path { fill: #57606a }
.outside { fill: #f6f8fa; stroke: #afb8c1 }
.face, .active { fill: #ddf4ff; stroke: #54aeff }
.layer, .paused { fill: #fff8c5; stroke: #d4a72c }
.kernel { fill: #dafbe1; stroke: #4ac26b }
.engine, .ended { fill: #eaeef2; stroke: #8c959f }
.fault { fill: #ffebe9; stroke: #ff8182 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #30363d }
  text { fill: #e6edf3 }
  .label { fill: #adbac7; stroke: #0d1117 }
  .arrow { stroke: #9198a1 }
  #head path { fill: #9198a1 }
  .outside { fill: #161b22; stroke: #484f58 }
  .face, .active { fill: #0c2d6b; stroke: #388bfd }
  .layer, .paused { fill: #4b2900; stroke: #d29922 }
  .kernel { fill: #033a16; stroke: #3fb950 }
  .engine, .ended { fill: #21262d; stroke: #6e7681 }
  .fault { fill: #67060c; stroke: #ff7b72 }
}
"""


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    x: int
    y: int
    width: int
    height: int
    kind: str
    lines: tuple[str, ...]

    def point(self, side: str, place: int) -> tuple[int, int]:
        match side:
            case "top":
                return place, self.y
            case "bottom":
                return place, self.y + self.height
            case "left":
                return self.x, place
            case _:
                return self.x + self.width, place

    def svg(self) -> str:
        middle = self.x + self.width // 2
        first = self.y + (self.height - LINE_HEIGHT * len(self.lines)) // 2 + 13
        texts = []
        for number, line in enumerate(self.lines):
            kind = "text" if number else "title"
            texts.append(f'<text class="{kind}" x="{middle}" y="{first + LINE_HEIGHT * number}">{escape(line)}</text>')
        place = f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'
        return "\n".join([f'<rect class="{self.kind}" {place} rx="8"/>', *texts])


@dataclass(frozen=True, slots=True)
class Arrow:
    start: str
    end: str
    points: tuple[tuple[int, int], ...]
    label: str

    def svg(self) -> str:
        path = "M" + " L".join(f"{x} {y}" for x, y in self.points)
        shape = f'<path class="arrow" d="{path}"/>'
        if not self.label:
            return shape
        legs = list(zip(self.points, self.points[1:], strict=False))
        (x1, y1), (x2, y2) = max(legs, key=lambda leg: abs(leg[0][0] - leg[1][0]) + abs(leg[0][1] - leg[1][1]))
        lift = -7 if y1 == y2 else 4
        place = f'x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 + lift}"'
        return f'{shape}\n<text class="label" {place}>{escape(self.label)}</text>'


def route(start: tuple[int, int], end: tuple[int, int], side: str) -> tuple[tuple[int, int], ...]:
    """The points of an arrow: a corner where the two ends share neither x nor y."""
    if start[0] == end[0] or start[1] == end[1]:
        return start, end
    return start, (end[0], start[1]) if side in {"left", "right"} else (start[0], end[1]), end


def read(text: str) -> tuple[tuple[int, int], dict[str, Box], list[Arrow]]:
    """The size, the boxes and the arrows of a picture."""
    size = (0, 0)
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for line in text.splitlines():
        head, *words = (part.strip() for part in line.split("|"))
        match head.split():
            case ["size", width, height]:
                size = int(width), int(height)
            case ["box", name, x, y, width, height, kind]:
                boxes[name] = Box(name, int(x), int(y), int(width), int(height), kind, tuple(words))
            case ["arrow", start, start_place, end, end_place]:
                (one, side), (other, other_side) = start.split("."), end.split(".")
                points = route(
                    boxes[one].point(side, int(start_place)), boxes[other].point(other_side, int(end_place)), side
                )
                arrows.append(Arrow(one, other, points, "".join(words)))
            case [mark, *_] if not mark.startswith("#"):
                raise ValueError(line)
            case _:  # an empty line or a comment
                pass
    return size, boxes, arrows


def draw(text: str) -> str:
    """The picture as SVG."""
    (width, height), boxes, arrows = read(text)
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L10 5 L0 10 z"/></marker>'
    )
    shapes = [*(box.svg() for box in boxes.values()), *(arrow.svg() for arrow in arrows)]
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>'
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([opening, f"<style>{STYLE}</style>", f"<defs>{head}</defs>", page, *shapes, "</svg>", ""])


if __name__ == "__main__":
    for source in FOLDER.glob("*.txt"):
        source.with_suffix(".svg").write_text(draw(source.read_text()))
