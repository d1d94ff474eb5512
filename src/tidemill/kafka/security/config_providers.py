"""Values that a setting only refers to, in the way of Kafka's ConfigProviders: secrets that are in no settings file.

    ${file:/path/to/file.properties:key}    the key's value in a file of Java properties
    ${directory:/path/to/folder:name}       what the file of that name holds, as Kubernetes and Docker mount secrets
    ${env:NAME}                             an environment variable

Decides the value of such a reference, at the moment when a client, a server or a session is made: until then, and in every
message, a setting is its reference. Invariant: an error names the reference, never what was found under it. This, like
``cli``, reads the environment: the user has asked for it by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidemill.config.secrets import SPARK_REDACTED, SPARK_REDACTION, is_reference
from tidemill.errors import ConfigError, EnvironmentProblem

_REFERENCE = re.compile(r"\$\{([^}:]*):([^}]*)\}")
_PASSED_ON = ("spark.hadoop.", "spark.metrics.conf.", "spark.executorEnv.", "spark.")
"""Beginnings of names that Spark takes off for whom the setting is meant; the last for Hive."""
_NO_SECRET = 3
"""Characters of a value that is too short to be looked for in a text."""
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def resolved(name: str, value: str) -> str:
    """The value of the setting ``name`` with every reference replaced. ConfigError if one leads nowhere."""
    if not is_reference(value):
        return value
    return _REFERENCE.sub(lambda found: _look_up(name, found), value)


def resolved_settings(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """``resolved`` for all settings of a prefix (``kafka.``)."""
    return {name: resolved(prefix + name, value) for name, value in settings.items()}


def resolved_spark(settings: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings with every reference looked up; what was referred to is a secret to Spark too, whatever its name."""
    found = {f"spark.{name}": value for name, value in resolved_settings("spark.", settings).items()}
    referring = sorted(f"spark.{name}" for name, value in settings.items() if is_reference(value))
    if referring:
        known = found.get(SPARK_REDACTION, SPARK_REDACTED)
        found[SPARK_REDACTION] = "|".join([known, *map(_pattern_of, referring)])
    return found


def references(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a prefix that are references, by their full names, as they were written."""
    return {prefix + name: value for name, value in settings.items() if is_reference(value)}


@contextmanager
def references_shown(found: Mapping[str, str], written: Mapping[str, str]) -> Iterator[None]:
    """Has errors that quote ``found`` settings, in whosever words, show those that are in ``written`` as they were written."""
    try:
        yield
    except (ConfigError, EnvironmentProblem) as error:
        said = str(error)
        for name, reference in written.items():
            said = said.replace(repr(found[name]), repr(reference))
            if len(found[name]) > _NO_SECRET:
                said = said.replace(found[name], reference)
        if said == str(error):
            raise
        raise type(error)(said) from None


def _pattern_of(name: str) -> str:
    """The pattern of a setting's name on Spark's pages, which list settings for others under these others' own names as well."""
    prefix = next(prefix for prefix in _PASSED_ON if name.startswith(prefix))
    return f"^(?:{re.escape(prefix)})?{re.escape(name.removeprefix(prefix))}$"


def _look_up(setting: str, found: re.Match[str]) -> str:
    provider, where = found[1], found[2]
    try:
        if provider == "env":
            return _of_environment(where)
        path, _, key = where.rpartition(":")
        if provider in ("file", "directory") and path and key:
            return _of_properties(Path(path), key) if provider == "file" else _of_folder(Path(path), key)
    except (OSError, UnicodeError, LookupError) as problem:
        said = problem.args[0] if isinstance(problem, LookupError) else _kind(problem)
        raise ConfigError(f"{setting} refers to {found[0]}: {said}") from None
    raise ConfigError(
        f"{setting} refers to {found[0]}, expected ${{file:PATH:KEY}}, ${{directory:PATH:NAME}} or ${{env:NAME}}"
    )


def _kind(problem: OSError | UnicodeError) -> str:
    return "it is not text in UTF-8" if isinstance(problem, UnicodeError) else problem.strerror or type(problem).__name__


def _of_environment(name: str) -> str:
    if name not in os.environ:
        raise LookupError(f"the environment of this process has no variable {name}")
    return os.environ[name]


def _of_folder(folder: Path, name: str) -> str:
    if name in (".", "..") or "/" in name:
        raise LookupError("the name after the last ':' is that of a file in the folder, without '/'")
    return (folder / name).read_text("utf-8").removesuffix("\n").removesuffix("\r")


def _of_properties(path: Path, key: str) -> str:
    properties = read_properties(path.read_text("utf-8"))
    if key not in properties:
        raise LookupError(f"the file has no line {key}=...")
    return properties[key]


def read_properties(text: str) -> dict[str, str]:
    """Java properties: ``key=value`` or ``key: value``; # and ! begin comments; a backslash escapes or continues."""
    properties: dict[str, str] = {}
    for line in re.split(r"\r?\n|\r", re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text)):
        found = re.match(r"[ \t\f]*(?![#!])((?:[^\\=: \t\f]|\\.)+)[ \t\f]*[=:]?[ \t\f]*(.*)", line)
        if found:
            properties[_unescaped(found[1])] = _unescaped(found[2])
    return properties


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2]),
        text,
    )
