"""Rows of cells as lines of text with columns under each other. Cells from outside are made ``printable`` by the caller."""

from __future__ import annotations

from collections.abc import Sequence


def table_lines(rows: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Columns as wide as they need, so that a pipe gets whole lines; no spaces at the ends of lines. Rows are of one length."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
