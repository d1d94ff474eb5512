"""A topology as a picture: SVG text that needs no network and no program, and Graphviz' DOT.

Decides what is drawn and where: topics, nodes with their stores, an arrow for each way that records take, from top to bottom by
the longest way to a node; nodes of one sub-topology have one colour. A topic that the program both writes and reads again is two,
so that nothing points upwards; a repartition topic is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from tidemill.topology.graph import node_groups
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology

_FILLS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#ede9fe", "#ccfbf1")
_LETTER, _LINE, _PAD = 6.7, 16, 10
"""Pixels of a letter, of a line, and around a text."""
_GAP_X, _GAP_Y, _LONGEST = 26, 38, 44


@dataclass(slots=True)
class _Shape:
    """A box on the picture: its lines, and where it is. ``part``: the sub-topology of a node; None: a topic."""

    lines: list[str]
    part: int | None = None
    above: list[str] = field(default_factory=list)
    rank: int = 0
    slot: int = 0

    @property
    def height(self) -> int:
        return _LINE * len(self.lines) + _PAD


def to_svg(topology: Topology) -> str:
    """The picture, one ``<svg>`` element."""
    shapes = _shapes(topology)
    _place(shapes)
    width = max((_LETTER * max(map(len, shape.lines)) for shape in shapes.values()), default=0) + 2 * _PAD
    rows = range(max((shape.rank for shape in shapes.values()), default=0) + 1)
    heights = [max((shape.height for shape in shapes.values() if shape.rank == row), default=0) for row in rows]
    tops = [_GAP_Y // 2 + sum(heights[:row]) + row * _GAP_Y for row in rows]
    middles = {name: _GAP_X // 2 + shape.slot * (width + _GAP_X) + width / 2 for name, shape in shapes.items()}
    across = max((shape.slot for shape in shapes.values()), default=0) + 1
    total_x, total_y = across * (width + _GAP_X), tops[-1] + heights[-1] + _GAP_Y // 2
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_x:.0f} {total_y}" width="{total_x:.0f}" height="{total_y}"'
        ' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" style="max-width:100%;height:auto">',
        '<defs><marker id="tidemill-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#64748b"/></marker></defs>',
    ]
    for name, shape in shapes.items():
        for parent in shape.above:
            x1, y1 = middles[parent], tops[shapes[parent].rank] + shapes[parent].height
            x2, y2 = middles[name], tops[shape.rank]
            drawn.append(
                f'<path d="M{x1:.0f} {y1} C{x1:.0f} {y1 + 20} {x2:.0f} {y2 - 20} {x2:.0f} {y2}" fill="none" stroke="#64748b"'
                ' marker-end="url(#tidemill-arrow)"/>'
            )
    for name, shape in shapes.items():
        drawn.append(_box(shape, middles[name], tops[shape.rank], width))
    return "\n".join((*drawn, "</svg>"))


def to_dot(topology: Topology) -> str:
    """Graphviz' DOT text: ``dot -Tpng``."""
    shapes = _shapes(topology)
    lines = ["digraph topology {", "  node [shape=box, fontname=monospace];"]
    for number, group in enumerate(node_groups(topology)):
        lines.append(f'  subgraph cluster_{number} {{ label="Sub-topology {number}";')
        lines += [f"    {_quoted(f'node {name}')} [label={_quoted(*shapes[f'node {name}'].lines)}];" for name in group]
        lines.append("  }")
    topics = {name: shape for name, shape in shapes.items() if shape.part is None}
    lines += [f"  {_quoted(name)} [shape=parallelogram, label={_quoted(*shape.lines)}];" for name, shape in topics.items()]
    lines += [f"  {_quoted(parent)} -> {_quoted(name)};" for name, shape in shapes.items() for parent in shape.above]
    return "\n".join((*lines, "}")) + "\n"


def _quoted(*lines: str) -> str:
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


# --- what is drawn, and where ------------------------------------------------------------------------------------------


def _shapes(topology: Topology) -> dict[str, _Shape]:
    """Shapes by a name that is unique among nodes and topics; parents come before their children."""
    shapes: dict[str, _Shape] = {}
    for part, group in enumerate(node_groups(topology)):
        for name in group:
            node = topology.nodes[name]
            lines = [_cut(name)]
            if isinstance(node, ProcessorNode):
                stores = f" [{', '.join(node.stores)}]" if node.stores else ""
                lines.append(_cut(f"{type(node.operation).__name__}{stores}"))
            shape = shapes[f"node {name}"] = _Shape(lines, part, [f"node {parent}" for parent in topology.parents[name]])
            if isinstance(node, SourceNode):
                for topic in node.topics or (node.topic_pattern or "",):
                    shape.above.append(_topic(shapes, topology, topic, "read"))
            if isinstance(node, SinkNode):
                named = node.topic if node.topic_extractor is None else "topics named by a function"
                shapes[_topic(shapes, topology, named, "written")].above.append(f"node {name}")
    return shapes


def _topic(shapes: dict[str, _Shape], topology: Topology, topic: str, way: str) -> str:
    name = f"topic {topic}" if topic in topology.repartition_topics else f"topic {topic}, {way}"
    shapes.setdefault(name, _Shape([_cut(topic)]))
    return name


def _cut(text: str) -> str:
    """Shortened in the middle: a generated name has its kind in front and its number at the end."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 15]}...{text[-12:]}"


def _place(shapes: dict[str, _Shape]) -> None:
    """Ranks by the longest way; within a rank near the middle of what is above, the order of the program between equals."""
    for _ in shapes:
        moved = False
        for shape in shapes.values():
            rank = max((shapes[parent].rank + 1 for parent in shape.above), default=0)
            moved |= rank != shape.rank
            shape.rank = rank
        if not moved:
            break
    for name, shape in shapes.items():  # a topic is drawn right above the first that reads it
        below = [other.rank for other in shapes.values() if name in other.above]
        if shape.part is None and not shape.above and below:
            shape.rank = min(below) - 1
    for rank in sorted({shape.rank for shape in shapes.values()}):
        row = [shape for shape in shapes.values() if shape.rank == rank]
        wanted = {id(shape): sum(shapes[above].slot for above in shape.above) / max(len(shape.above), 1) for shape in row}
        free = 0
        for shape in sorted(row, key=lambda shape: wanted[id(shape)] if shape.above else float("inf")):
            shape.slot = max(free, round(wanted[id(shape)])) if shape.above else free
            free = shape.slot + 1


def _box(shape: _Shape, middle: float, top: int, width: float) -> str:
    left, fill = middle - width / 2, "#f1f5f9" if shape.part is None else _FILLS[shape.part % len(_FILLS)]
    title = "topic" if shape.part is None else f"sub-topology {shape.part}"
    dash = ' stroke-dasharray="4 3"' if shape.part is None else ""
    radius = shape.height / 2 if shape.part is None else 4
    drawn = [
        f'<g><title>{title}</title><rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{shape.height}" rx="{radius:.0f}"'
        f' fill="{fill}" stroke="#64748b"{dash}/>'
    ]
    for number, line in enumerate(shape.lines):
        y, colour = top + _PAD / 2 + _LINE * number + 12, "#0f172a" if number == 0 else "#475569"
        drawn.append(f'<text x="{middle:.0f}" y="{y:.0f}" text-anchor="middle" fill="{colour}">{escape(line)}</text>')
    return "".join((*drawn, "</g>"))
