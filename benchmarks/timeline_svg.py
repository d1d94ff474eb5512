"""A start's timeline as a picture: an SVG of the spans and moments in a file of ``tidemill run --trace-start``.

    python benchmarks/timeline_svg.py TRACE.json PICTURE.svg

Decides what is worth a bar: all that takes a hundredth of the whole or more. One row a thread or process, those that began first
on top; spans within spans share the row.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 1000, 110, 20, 30, 34
_LEAST = 0.01
_CHARACTER = 5.6
_COLOURS = {"driver": "#4c78a8", "JVM": "#e0862f", "worker": "#54a24b", "wait": "#c9ced6"}


def picture(events: list[dict[str, Any]]) -> str:
    """The SVG's text."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    told = sorted((e for e in events if e["ph"] != "M"), key=lambda e: e["ts"])
    began = told[0]["ts"]
    whole = max(e["ts"] + e.get("dur", 0) for e in told) - began
    spans = [e for e in told if e["ph"] == "X" and e["dur"] >= _LEAST * whole]
    rows = list(dict.fromkeys(_row(e, names) for e in spans))
    height = _TOP + _ROW * len(rows) + 26
    scale = (_WIDTH - _LEFT - _RIGHT) / whole
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="10">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for second in range(int(whole / 1e6) + 1):
        x = _LEFT + second * 1e6 * scale
        if second % max(1, round(whole / 1e6 / 15)) == 0:
            lines.append(f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{height - 20}" stroke="#e8e8e8"/>')
            lines.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle" fill="#666666">{second} s</text>')
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end" fill="#222222">{escape(row)}</text>')
    for span in spans:
        x, y = _LEFT + (span["ts"] - began) * scale, _TOP + rows.index(_row(span, names)) * _ROW
        behind = [e["ts"] for e in spans if _row(e, names) == _row(span, names) and e["ts"] > span["ts"]]
        room = (min(behind) - span["ts"]) * scale if behind else _WIDTH - x
        lines += _bar(span, x, y, span["dur"] * scale, room, _kind(span, names))
    for name in dict.fromkeys(event["name"] for event in told if event["ph"] == "i"):
        for event in [event for event in told if event["name"] == name][:1]:
            x = _LEFT + (event["ts"] - began) * scale
            lines.append(f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{height - 20}" stroke="#b03060"/>')
            lines.append(f'<text x="{x:.1f}" y="{_TOP - 12}" text-anchor="end" fill="#b03060">{escape(event["name"])}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(event: dict[str, Any], names: dict[tuple[int, int], str]) -> str:
    name = names.get((event["pid"], event["tid"]), "?")
    number, _, part = name.rpartition("StreamThread-")[2].partition("-")
    if "StreamThread-" not in name:
        return {"MainThread": "driver"}.get(name, name)
    return f"thread {number}" + {"": "", "consumer-membership": ": the group"}.get(part, f": {part}")


def _kind(event: dict[str, Any], names: dict[tuple[int, int], str]) -> str:
    if "waited for" in event["name"]:
        return "wait"
    row = _row(event, names)
    return "JVM" if row == "JVM" else "worker" if row.startswith("worker") else "driver"


def _bar(span: dict[str, Any], x: float, y: float, width: float, room: float, kind: str) -> list[str]:
    """Its text stands in it, or next to it if there is so much ``room`` up to the next, or nowhere."""
    took = f"{span['dur'] / 1e6:.1f} s"
    text, title = f"{span['name']}, {took}", escape(f"{span['name']}: {took}")
    needed = len(text) * _CHARACTER + 6
    bar = [
        f'<rect x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="{_ROW - 8}" rx="2" fill="{_COLOURS[kind]}">'
        f"<title>{title}</title></rect>"
    ]
    if needed <= width:
        colour = "#222222" if kind == "wait" else "#ffffff"
        return [*bar, f'<text x="{x + 3:.1f}" y="{y + 15}" fill="{colour}">{escape(text)}</text>']
    if width + needed <= room:
        return [*bar, f'<text x="{x + width + 3:.1f}" y="{y + 15}" fill="#222222">{escape(text)}</text>']
    return bar


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(json.loads(Path(sys.argv[1]).read_text())))
