"""``tidemill describe APP.py``: the topology of an application, as Kafka prints it, as JSON or as a Mermaid flowchart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.application_file import load_application
from tidemill.errors import ConfigError
from tidemill.topology.describe import describe as describe_text
from tidemill.topology.describe import to_json, to_mermaid


def describe(
    app: Annotated[Path, typer.Argument(help="The application file, or its module: Python that defines builder or topology.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    optimization: Annotated[
        str | None,
        typer.Option(help="none, all, or names of optimizations: overrides topology.optimization of the file."),
    ] = None,
) -> None:
    """Print the topology of an application, as Topology.describe() of Kafka Streams does."""
    if json and mermaid:
        raise ConfigError("--json and --mermaid exclude each other; give one of them")
    topology, _ = load_application(app, {} if optimization is None else {"topology.optimization": optimization})
    text = to_json(topology) + "\n" if json else to_mermaid(topology) if mermaid else describe_text(topology)
    typer.echo(text, nl=False)
