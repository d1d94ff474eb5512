"""The command `tidemill`: which commands there are, and how an error becomes one sentence and an exit code.

Each command group is a module of its own and is imported only when it is asked for, or for the list of all. Those modules
import what is heavy (pyspark, Kafka's clients) inside their functions, so that the list and `describe` come at once.

Exit codes: 0; 1 a run that went wrong; 2 a program, usage, settings or surroundings to be corrected; 130 after Ctrl-C.
"""

from __future__ import annotations

import io
import os
import platform
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Annotated, TextIO

import typer

from tidemill.errors import ConfigError, EnvironmentProblem, TidemillError, TopologyError
from tidemill.printable import printable

# Command -> the module that has it and its name there: a typer.Typer for a group, a function for a single command.
COMMANDS = {
    "new": ("tidemill.cli.new_project", "new_project"),
    "try": ("tidemill.cli.try_program", "try_program"),
    "describe": ("tidemill.cli.describe", "describe"),
    "group": ("tidemill.cli.group", "app"),
    "assign": ("tidemill.cli.assign", "app"),
    "broker": ("tidemill.cli.broker", "app"),
    "demo": ("tidemill.cli.demo", "demo"),
    "demo-ha": ("tidemill.cli.demo_ha", "demo_ha"),
    "drain": ("tidemill.cli.drain", "drain"),
    "roll": ("tidemill.cli.roll", "roll"),
    "explain-plan": ("tidemill.cli.explain_plan", "explain_plan"),
    "prepare": ("tidemill.cli.prepare", "prepare"),
    "reset": ("tidemill.cli.reset", "reset"),
    "run": ("tidemill.cli.run", "run"),
    "schema": ("tidemill.cli.schema", "app"),
    "state": ("tidemill.cli.state", "app"),
    "top": ("tidemill.cli.top", "top"),
}

_MOST_SHOWN = 4_000


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; ends the process with the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that is no text can be shown all the same
    try:
        _app(given)(args=given, prog_name="tidemill")
    except TidemillError as error:
        _tell(printable(error, longest=_MOST_SHOWN))
        sys.exit(2 if isinstance(error, (ConfigError, EnvironmentProblem, TopologyError)) else 1)
    except OSError as error:
        if not _has_working_folder():
            _tell("the folder in which this was started is gone; go to one that exists, and start it there")
            sys.exit(2)
        if _can_write(sys.stdout):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries what is left once more at its end, and complains
        _tell(f"the output can't be written: {error.strerror}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _tell(sentence: str) -> None:
    """Writes to standard error; where that can't be written the exit code stays as it is."""
    try:
        sys.stderr.write(f"tidemill: {sentence}\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _can_write(stream: TextIO) -> bool:
    """Tried with an empty line; the error alone does not say what could not be written."""
    try:
        stream.write("\n")
        stream.flush()
    except OSError:
        return False
    return True


def _app(given: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        help="Kafka Streams' programming and availability model for Python, on Apache Spark.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)  # with a callback it stays a group, however few commands are added
    asked = given[0] if given and given[0] in COMMANDS else None
    for name in COMMANDS if asked is None else [asked]:
        module, attribute = COMMANDS[name]
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidemill {metadata.version('tidemill')}, Python {platform.python_version()}")
        raise typer.Exit


def _options(
    version: Annotated[  # it is looked at by the callback
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Say which Tidemill this is, and stop.")
    ] = False,
) -> None: ...
