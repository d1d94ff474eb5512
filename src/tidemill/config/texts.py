"""Settings from texts: a TOML file, and ``key=value`` as the command line takes them.

Decides how a text becomes names and values; what they mean is `tidemill.config.streams_config`'s.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from tidemill.documents import Document
from tidemill.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_KEYS = re.compile(r"[\w. \t-]+")
_DEEPEST = 100
"""Parts of a name. Reading one takes time by the square of them."""


def load_toml(source: str) -> dict[str, object]:
    """The settings of a TOML text: tables and dotted keys become dotted names; ConfigError if it isn't TOML."""
    try:
        settings: dict[str, object] = {}
        for name, value in _flat("", parse_toml(source)):
            if name in settings:  # TOML takes a key in quotation marks for another one
                raise ConfigError(f"not clear: {name} is there twice")
            settings[name] = value
        return settings
    except ConfigError as error:
        raise ConfigError(f"the settings are {error}; write lines such as num.stream.threads = 2") from None


def parse_toml(source: str) -> Document:
    """The table of a TOML text. ConfigError, which begins with "not TOML", if it is none, nested too deeply included."""
    deep = next((key for key in _KEYS.findall(source) if key.count(".") > _DEEPEST), None)
    if deep is not None:
        raise ConfigError(f"not TOML that can be used: a name of {deep.count('.') + 1} parts, expected at most {_DEEPEST}")
    try:
        table: Document = tomllib.loads(source)
        return table
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
    except RecursionError:
        raise ConfigError("not TOML that can be used: nested too deeply") from None
    except ValueError as error:  # of a number, or a date, that Python can't have
        raise ConfigError(f"not TOML that can be used: {error}") from None


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """The settings of ``key=value`` texts, as ``--set`` takes them."""
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            problem = "there is nothing in front of an '='" if equals else f"{_begin(assignment)!r} has no '='"
            raise ConfigError(f"--set takes key=value, such as num.stream.threads=2; {problem}")
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
