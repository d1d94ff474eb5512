"""HTML of an instance for notebooks: its state, and its threads with their tasks, from the document of /instance.

Decides what of the document is shown; what is in it is ``instance_status``'.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tidemill.documents import Document


def not_started(application_id: str, state: str) -> str:
    """An instance that has no threads yet."""
    return f"<b>{escape(application_id)}</b>: {escape(state)}; <code>start()</code> starts it"


def instance_html(status: Document, scheme: str = "") -> str:
    """A line on the instance, and a table of its threads and their tasks. ``scheme``: of its page, which shows the whole group;
    empty if it has none."""
    line = f"<b>{escape(status['application'])}</b>: {escape(status['state'])}"
    if status["host"]:
        host = escape(status["host"])
        line += f', <a href="{scheme}://{host}/" target="_blank">{host}</a> shows the group' if scheme else f", answers at {host}"
    why = status["error"] or ("" if status["ready"] else "; ".join(status["why"]))
    if why:
        line += f"<br/>{escape(why)}"
    head = ("thread", "tasks", "standbys", "records/s", "written/s", "latency ms", "dropped")
    rows = [_thread(thread) for thread in status["threads"]]
    return f"<div>{line}</div><table><thead>{_row(head, 'th')}</thead><tbody>{''.join(_row(row) for row in rows)}</tbody></table>"


def _thread(thread: Document) -> tuple[str, ...]:
    name = f"{thread['number']}" if thread["running"] else f"{thread['number']} (ended: {thread['error'] or 'closed'})"
    latency = thread["latency_ms"]
    return (
        name, ", ".join(map(_active, thread["active"])) or "none", ", ".join(map(_standby, thread["standby"])) or "none",
        str(thread["records_per_s"]), str(thread["produced_per_s"]), "" if latency is None else str(latency),
        str(thread["dropped"]),
    )  # fmt: skip


def _active(task: Document) -> str:
    """Its name; what it does where it does not run, and how far it has to go."""
    if task["phase"] == "running":
        return str(task["task"])
    left = "" if task["seconds_left"] is None else f", {task['seconds_left']:.0f} s left"
    return f"{task['task']} ({task['phase']}{'' if task['lag'] is None else ', ' + str(task['lag']) + ' records behind'}{left})"


def _standby(task: Document) -> str:
    return str(task["task"]) if not task["lag"] else f"{task['task']} ({task['lag']} records behind)"


def _row(cells: Iterable[str], cell: str = "td") -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in cells) + "</tr>"
