"""Settings from texts: a TOML file, and ``key=value`` as the command line takes them.

Decides how a text becomes names and values; what they mean is `tidemill.config`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from tidemill.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_toml(source: str) -> dict[str, object]:
    """The settings of a TOML text: tables and dotted keys become dotted names; ConfigError if it isn't TOML."""
    try:
        return dict(_flat("", tomllib.loads(source)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the settings are not TOML: {error}; write lines such as num.stream.threads = 2") from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """The settings of ``key=value`` texts, as ``--set`` takes them."""
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set takes key=value, such as num.stream.threads=2; {_begin(assignment)!r} has no '='")
        settings[name.strip()] = value
    return settings


def _begin(assignment: str) -> str:
    """Its first word, which may be a setting's name: what follows may be its value, and that a secret."""
    return assignment.strip().split(" ")[0].split(":")[0]


def _flat(prefix: str, table: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value
