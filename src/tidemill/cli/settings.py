"""Options of the command line that say which settings, and which brokers, a command works with.

Decides whose settings win: an option for one setting, then ``--set``, then the TOML file, then the application file. Where none
names the brokers, a command that needs no application takes a local one; an application itself needs ``bootstrap.servers``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.files import read_text
from tidemill.config.texts import load_toml, parse_assignments
from tidemill.config.values import servers
from tidemill.errors import ConfigError

LOCAL_BROKERS: Mapping[str, object] = {"bootstrap.servers": "localhost:9092"}
"""Below all other settings, where a command needs no application."""
_MOST_CONFIG_BYTES = 4 << 20

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated. Overrides files.", show_default=False),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE.toml", help="Settings; override those of the application file.")
]
BootstrapServer = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers to begin with: overrides bootstrap.servers.")
]


def _named(group: str | None) -> str | None:
    """A group's name: an empty one, of a variable that a script lacks, ends librdkafka's consumer and so the process."""
    if group == "":
        raise ConfigError("--group is '', expected the application.id")
    return group


Group = Annotated[str, typer.Option("--group", callback=_named, help="The group: the application.id.")]
GroupIfAny = Annotated[str | None, typer.Option("--group", callback=_named, help="The group: the application.id.")]
GroupConfig = Annotated[
    Path | None, typer.Option("--config", metavar="FILE.toml", help="Settings, such as kafka.* and tidemill.http.token.")
]
GroupBrokers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT,...", help="Brokers; by default bootstrap.servers, else localhost:9092."
    ),
]


def outside_settings(
    assignments: Sequence[str] | None, config: Path | None, bootstrap_server: str | None = None
) -> dict[str, object]:
    """The settings that win over the application file's: those of the TOML file, then those of ``--set``, then the brokers."""
    settings: dict[str, object] = {}
    if config is not None:
        text = read_text(config, expected="settings in TOML (--config)", most_bytes=_MOST_CONFIG_BYTES)
        try:
            settings.update(load_toml(text))
        except ConfigError as error:
            raise ConfigError(f"{config}: {error}") from error
    settings.update(parse_assignments(assignments or ()))
    if bootstrap_server is not None:
        try:
            settings["bootstrap.servers"] = servers(bootstrap_server)  # read here, since an error names the option
        except ValueError as error:
            raise ConfigError(f"--bootstrap-server is {bootstrap_server!r}, expected {error}") from None
    return settings
