"""`tidemill broker`: the embedded Kafka for everyday use.

Decides where its data and records are kept by default (the user's data and state folders); the work is in
`tidemill.embedded.daemon`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import typer

from tidemill.cli.files import read_text
from tidemill.cli.progress import status_line
from tidemill.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidemill.embedded.daemon import RunningBroker

app = typer.Typer(help="Start, stop and look at the embedded Kafka broker.", no_args_is_help=True)


@app.command()
def start(
    port: int = typer.Option(9092, min=1, max=65535, help="Port on the loopback interface."),
    data: Path | None = typer.Option(None, help="Folder of its data; by default one in your data folder."),
    protocol: str = typer.Option("PLAINTEXT", help="Protocol of clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."),
    keystore: Path | None = typer.Option(None, help="PEM file with the broker's private key and certificates (SSL)."),
    truststore: Path | None = typer.Option(None, help="PEM file with the certificates that sign those of clients."),
    client_certificates: str = typer.Option("none", help="Client certificates: none, requested or required."),
    mechanism: list[str] = typer.Option([], help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; may be given more than once."),
    users: Path | None = typer.Option(None, help="Properties file of users: a line name=password for each (SASL)."),
    acls: bool = typer.Option(False, "--acls", help="Enable ACLs: only super users can do what was not granted."),
    super_user: list[str] = typer.Option([], help="Principal without restrictions, such as User:admin; may be repeated."),
) -> None:
    """Start a broker that runs until `tidemill broker stop`."""
    from tidemill.embedded.broker_security import BrokerSecurity
    from tidemill.embedded.daemon import start_broker

    security = None
    if protocol != "PLAINTEXT" or acls or keystore or truststore or mechanism or users:
        security = BrokerSecurity(
            protocol=protocol,
            mechanisms=tuple(mechanism),
            users=_users(users) if users is not None else {},
            keystore=keystore and keystore.absolute(),
            truststore=truststore and truststore.absolute(),
            client_certificates=client_certificates,
            acls=acls,
            super_users=tuple(super_user),
        )
    folder = data if data is not None else Path(platformdirs.user_data_dir("tidemill"), "broker")
    with status_line() as say:
        say(f"starting a Kafka broker on port {port}")
        broker = start_broker(
            environ=os.environ, records=_records(), data=folder, port=port, security=security, progress=say
        )
    typer.echo(f"running: {_describe(broker)}")


@app.command()
def stop(
    port: int | None = typer.Option(None, help="Port of the broker, if several run."),
    data: Path | None = typer.Option(None, help="Folder of the broker."),
) -> None:
    """Shut down a broker; its data is kept."""
    from tidemill.embedded.daemon import running_brokers, stop_broker

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
    """List running brokers. Exit code 1 if there is none."""
    from tidemill.embedded.daemon import running_brokers

    running = running_brokers(_records())
    for broker in running:
        typer.echo(f"running: {_describe(broker)}")
    if not running:
        typer.echo("no broker runs")
        raise typer.Exit(1)


def _records() -> Path:
    return Path(platformdirs.user_state_dir("tidemill"), "brokers")


def _users(path: Path) -> dict[str, str]:
    from tidemill.kafka.security.config_providers import read_properties

    return read_properties(read_text(path, expected="users, a line name=password for each", most_bytes=1 << 20))


def _describe(broker: RunningBroker) -> str:
    inside = f" internal={broker.internal_servers}" if broker.internal_port else ""
    return f"bootstrap.servers={broker.bootstrap_servers}{inside} pid={broker.pid} data={broker.data}"


def _ports(brokers: list[RunningBroker]) -> str:
    return ", ".join(str(broker.port) for broker in brokers)
