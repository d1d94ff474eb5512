"""Options of the command line that say with which settings a command works.

Decides whose settings win: an option for one setting, then ``--set``, then the TOML file, then the application file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.files import read_text
from tidemill.config.texts import load_toml, parse_assignments
from tidemill.errors import ConfigError

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
        settings["bootstrap.servers"] = bootstrap_server
    return settings
