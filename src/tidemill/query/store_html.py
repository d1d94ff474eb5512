"""A store as a notebook shows it: its first entries in a table, or the sentence that says why it can't be read now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import islice

from tidemill.errors import TidemillError

_SHOWN = 20


def store_html(name: str, columns: Sequence[str], rows: Callable[[], Iterable[Sequence[object]]]) -> str:
    """The first rows of what ``rows`` gives, under ``columns``."""
    try:
        found = list(islice(rows(), _SHOWN + 1))
    except TidemillError as error:
        return f"<div><b>{escape(name)}</b>: {escape(str(error))}</div>"
    count = f"the first {_SHOWN} rows" if len(found) > _SHOWN else f"{len(found)} row{'' if len(found) == 1 else 's'}"
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in found[:_SHOWN]
    )
    return (
        f"<div><b>{escape(name)}</b>, {count} of the partitions that are here</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
