"""`tidemill state`: the contents of a state directory, whether an instance runs or not; and removing it.

Decides how it is shown. Looking only reads, and takes any of `state.dir`, an application's directory in it or a task's directory;
cleaning takes an application's directory, since that is what an instance holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidemill.documents import Document
from tidemill.errors import EnvironmentProblem, ForeignStateError, StateError
from tidemill.ids import TaskId
from tidemill.state import checkpoint
from tidemill.state.directory import StateDirectory
from tidemill.state.durability import Shutdown
from tidemill.state.lock import StateDirectoryLock
from tidemill.text_table import table_lines

app = typer.Typer(help="Look into a state directory, or clean it.", no_args_is_help=True)


def _path(text: str) -> Path:
    """An empty text, as of a shell's variable that is unset, would be the current folder."""
    if not text.strip() or "\0" in text:
        raise EnvironmentProblem(f"the path is {text!r}, expected that of a state directory")
    return Path(text)


StateDir = Annotated[Path, typer.Argument(parser=_path, help="state.dir, an application's directory in it, or a task's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_LOCK_WAIT_S = 15.0
_LEFT = {Shutdown.CLEAN: "clean", Shutdown.CRASHED: "in use, or crashed"}


@dataclass(frozen=True, slots=True)
class _TaskReport:
    """Contents of a task's directory: as JSON and as a checkpoint, or why it can't be read."""

    path: Path
    shown: Document
    checkpoint: str
    problem: StateError | None


@app.command()
def ls(state_dir: StateDir, as_json: AsJson = False) -> None:
    """List tasks: stores, entries, next changelog offsets, the tasks' size, and how they were closed.

    Exit code 1 if a task's state can't be read or belongs to another task.
    """
    reports = _reports(state_dir)
    if as_json:
        typer.echo(json.dumps([report.shown for report in reports], indent=2))
    else:
        typer.echo(_table(reports))
    if any(report.problem for report in reports):
        raise typer.Exit(1)


@app.command()
def show(state_dir: StateDir, as_json: AsJson = False) -> None:
    """Print each task's positions as Kafka's `.checkpoint` has them: the offset of the last record applied, per changelog.

    For several tasks their paths are printed too. --json adds owner, stores and input positions.
    """
    reports = _reports(state_dir)
    for report in reports:
        if report.problem is not None:
            raise report.problem
    if as_json:
        typer.echo(json.dumps([report.shown for report in reports], indent=2))
        return
    for report in reports:
        typer.echo(f"{report.path}:\n{report.checkpoint}" if len(reports) > 1 else report.checkpoint, nl=False)


@app.command()
def clean(
    application_directory: Annotated[Path, typer.Argument(parser=_path, help="<state.dir>/<application.id>")],
) -> None:
    """Remove the stores of all tasks of a stopped instance: they are restored from their changelogs when it starts again.

    The process id is kept. Refused while an instance has the directory.
    """
    path = application_directory.resolve()
    directory = StateDirectory(path.parent, path.name)
    if not directory.tasks():
        raise EnvironmentProblem(f"no task's state in {path}: expected <state.dir>/<application.id>, with a directory per task")
    with StateDirectoryLock.acquire(directory.path, timeout_s=_LOCK_WAIT_S) as lock:
        removed = directory.clean(lock)
    typer.echo(f"removed the state of {', '.join(map(str, removed))}")


def _table(reports: list[_TaskReport]) -> str:
    """A line for each store."""
    rows = [("application", "task", "store", "entries", "next offset", "in use", "left")]
    for report in reports:
        task = (report.shown["application"], report.shown["task"])
        if report.problem is not None:
            rows.append((*task, "", "", "", "", str(report.problem)))
            continue
        for store, held in report.shown.get("stores", {}).items():
            offset = "-" if held["next_offset"] is None else str(held["next_offset"])
            in_use = f"{report.shown['bytes_in_use'] >> 10:,} KiB"
            rows.append((*task, store, f"{held['entries']:,}", offset, in_use, report.shown["left"]))
    return "\n".join(table_lines(rows))


def _reports(path: Path) -> list[_TaskReport]:
    """All tasks under `path`. Raises EnvironmentProblem if there are none."""
    reports = [_report(directory, task) for directory, tasks in _directories(path.resolve()) for task in tasks]
    if not reports:
        raise EnvironmentProblem(
            f"no task's state in {path}: expected a state.dir, an application's directory in it, which has one directory per "
            "task (1_0, ...), or one of these"
        )
    return reports


def _report(directory: StateDirectory, task: TaskId) -> _TaskReport:
    from tidemill.state.lmdb import TaskState
    from tidemill.state.meta import StateIdentity

    path = directory.task_path(task)
    shown: dict[str, object] = {"application": directory.path.name, "task": str(task), "path": str(path)}
    try:
        state = TaskState.open_to_read(path)
    except StateError as problem:
        return _TaskReport(path, {**shown, "problem": str(problem)}, "", problem)
    try:
        positions, topic_ids = state.positions(), state.topic_ids()
        shown["stores"] = {
            store: {
                "entries": state.entries(store),
                "next_offset": positions.changelog.get(store),
                "topic_id": topic_ids.get(store),
            }
            for store in state.stores
        }
        shown["inputs"] = {str(partition): offset for partition, offset in sorted(positions.inputs.items())}
        shown["owner"] = positions.epoch
        shown["bytes_in_use"] = state.size()[1]
        shown["left"] = _LEFT[state.opened_after]
        whose, foreign = state.whose(), None
        # On an executor the instance's process id is between the application and its tasks.
        if whose is not None and (whose.task != task or whose.application_id not in path.parts[-3:-1]):
            expected = StateIdentity(application_id=directory.path.name, task=task)
            foreign = ForeignStateError(str(path), found=str(whose), expected=str(expected))
            shown["problem"] = str(foreign)
        return _TaskReport(path, shown, checkpoint.render(state.checkpoint()), foreign)
    finally:
        state.close(clean=False)


def _directories(path: Path) -> Iterator[tuple[StateDirectory, list[TaskId]]]:
    """Applications' directories with the tasks in each that are asked for."""
    of_a_task = StateDirectory(path.parent.parent, path.parent.name)
    asked = [task for task in of_a_task.tasks() if of_a_task.task_path(task) == path]
    of_an_application = StateDirectory(path.parent, path.name)
    if asked:
        yield of_a_task, asked
    elif tasks := of_an_application.tasks():
        yield of_an_application, tasks
    elif path.is_dir():
        for entry in sorted(path.iterdir()):
            directory = StateDirectory(path, entry.name)
            yield directory, directory.tasks()
