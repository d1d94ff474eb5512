"""`tidemill broker`: the embedded Kafka for everyday use.

Decides where its data and records are kept by default (the user's data and state folders); the work is in
`tidemill.kafka.daemon`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import typer

from tidemill.cli.progress import status_line
from tidemill.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidemill.kafka.daemon import RunningBroker

app = typer.Typer(help="Start, stop and look at the embedded Kafka broker.", no_args_is_help=True)


@app.command()
def start(
    port: int = typer.Option(9092, min=1, max=65535, help="Where it listens, on the loopback interface."),
    data: Path | None = typer.Option(None, help="Its folder; without it, one in your data folder."),
) -> None:
    """Start a broker that runs until `tidemill broker stop`."""
    from tidemill.kafka.daemon import start_broker

    folder = data if data is not None else Path(platformdirs.user_data_dir("tidemill"), "broker")
    with status_line() as say:
        say(f"starting a Kafka broker on port {port}")
        broker = start_broker(environ=os.environ, records=_records(), data=folder, port=port, progress=say)
    typer.echo(f"running: {_describe(broker)}")


@app.command()
def stop(
    port: int | None = typer.Option(None, help="Which one, if several run."),
    data: Path | None = typer.Option(None, help="Which one, by its folder."),
) -> None:
    """Stop a broker in good order; its data stays."""
    from tidemill.kafka.daemon import running_brokers, stop_broker

    running = running_brokers(_records())
    chosen = [
        broker
        for broker in running
        if port in (None, broker.port) and (data is None or str(data.absolute()) == broker.data)
    ]
    if len(chosen) > 1:
        raise EnvironmentProblem(f"{len(chosen)} brokers run: say --port, one of {_ports(chosen)}")
    if not chosen and running:
        raise EnvironmentProblem(f"no such broker runs; there are brokers on port {_ports(running)}")
    if not chosen:
        typer.echo("no broker runs")
        return
    with status_line() as say:
        say(f"stopping the broker on port {chosen[0].port}")
        stop_broker(chosen[0], records=_records())
    typer.echo(f"stopped: {_describe(chosen[0])}")


@app.command()
def status() -> None:
    """Show the brokers that run; exit code 1 if there is none."""
    from tidemill.kafka.daemon import running_brokers

    running = running_brokers(_records())
    for broker in running:
        typer.echo(f"running: {_describe(broker)}")
    if not running:
        typer.echo("no broker runs")
        raise typer.Exit(1)


def _records() -> Path:
    return Path(platformdirs.user_state_dir("tidemill"), "brokers")


def _describe(broker: RunningBroker) -> str:
    return f"bootstrap.servers={broker.bootstrap_servers} pid={broker.pid} data={broker.data}"


def _ports(brokers: list[RunningBroker]) -> str:
    return ", ".join(str(broker.port) for broker in brokers)
