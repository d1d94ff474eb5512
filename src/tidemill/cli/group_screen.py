"""The group on a terminal, by rich: a line on the whole, a table of instances, what is on its way, the last rebalances.

Decides the layout only; figures and words are ``group_view``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.cli.group_view import (
    CopyRow,
    InstanceRow,
    copy_rows,
    duration,
    instance_rows,
    rebalances,
    summary,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tidemill.query.group_documents import GroupDocument

_REBALANCES = 6
_COPIES = 16
_BAR = 16
_STYLES = {
    "RUNNING": "green",
    **dict.fromkeys(("REBALANCING", "RESTORING", "DRAINING"), "yellow"),
    **dict.fromkeys(("AWAY", "ERROR", "PENDING_ERROR"), "bold red"),
}


def group_screen(group: GroupDocument, *, most_copies: int | None = _COPIES) -> RenderableType:
    """Everything; ``most_copies`` None: however many there are."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(summary(group), style="bold"), _instances(instance_rows(group))]
    copies = copy_rows(group)
    if copies:
        parts.append(_copies(copies, most_copies))
    past = rebalances(group, _REBALANCES)
    if past:
        parts += [Text("Rebalances", style="bold"), _rebalances(past)]
    return Group(*parts)


def _rebalances(past: list[tuple[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for at, words in past:
        table.add_row(Text(at, style="dim"), Text(words))
    return table


def _table(*columns: str, right: tuple[str, ...]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _instances(rows: list[InstanceRow]) -> RenderableType:
    from rich.text import Text

    figures = ("REC/S", "LATENCY", "BATCH", "BEHIND")
    table = _table("INSTANCE", "STATE", "THREADS", "ACTIVE", "COPIES", *figures, "REBALANCED", right=figures)
    for row in rows:
        state = Text(row.state, style=_STYLES.get(row.state, ""))
        table.add_row(
            f"{row.name}{' *' if row.leads else ''}", state, row.threads, row.active, row.copies,
            _count(row.records_per_s), _ms(row.latency_ms), _ms(row.batch_ms), _count(row.behind), row.rebalanced,
        )  # fmt: skip
        if row.trouble:
            table.add_row("", Text(row.trouble, style="dim"), *[""] * 8)
    return table


def _copies(rows: list[CopyRow], most: int | None) -> RenderableType:
    from rich.text import Text

    table = _table("TASK", "ROLE", "ON", "LAG", "", "PER S", "LEFT", right=("LAG", "PER S", "LEFT"))
    worst = max((row.lag or 0 for row in rows), default=0)
    shown = rows if most is None else rows[:most]
    for row in shown:
        style = "" if row.role == "standby" else "yellow"
        table.add_row(
            str(row.task), Text(row.role, style=style), row.where, _count(row.lag), Text(_bar(row.lag, worst), style=style),
            _count(row.per_s), "" if not row.lag else duration(row.seconds_left),
        )  # fmt: skip
    if len(shown) < len(rows):
        table.add_row("", Text(f"and {len(rows) - len(shown)} more", style="dim"), *[""] * 5)
    return table


def _bar(lag: int | None, worst: int) -> str:
    """Its length is the copy's lag, relative to the largest one."""
    if not lag or not worst:
        return ""
    return "█" * max(1, round(_BAR * lag / worst))


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
