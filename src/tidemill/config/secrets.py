"""Display of settings: all of a value, unless it holds a credential.

Decides by the setting's name, and where that says nothing by the value: an address or an option may carry a password.
Everything that shows a setting, in a message, a listing or when printed, asks ``shown``.
"""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_NAMES = (
    "passw|secret|jaas|token|credential|user.?info|private|(?<![a-z])(?:pass|pwd|sas)(?![a-z])"
    "|(?:access|account|api|encryption|keystore)[._-]?key"
)
"""Names of credentials: Kafka's, Spark's, and those that Hadoop's file systems have for stores in a cloud."""
_IN_ADDRESS = r"(?:(?<=https://)|(?<=http://))[^\s/'\"]+(?=@)|(?<=//)[^\s/'\":@]*:[^\s/'\"]*(?=@)"
SPARK_REDACTION = "spark.redaction.regex"
SPARK_REDACTED = f"(?i){_NAMES}|(?<=[?&])sig=|{_IN_ADDRESS}"
"""Pattern of names and values of Spark settings that Spark does not show."""
_CREDENTIALS = re.compile(
    rf"(?:{_NAMES})[\w.-]*=(?!\$\{{)(?P<assigned>(?P<quote>[\"']).*?(?P=quote)|[^\s&;,'\"]+)"
    rf"|(?<=[?&])sig=(?P<signature>[^\s&;,'\"]+)|(?P<login>{_IN_ADDRESS})",
    re.IGNORECASE,
)
"""A password within a longer text: ``password=...`` of a JDBC address or a JVM's option, a signature, a login in an address."""
_REFERENCE = re.compile(r"\$\{[^}:]*:[^}]*\}")
_SECRET = re.compile(_NAMES, re.IGNORECASE)


def is_secret(name: str) -> bool:
    """True if a setting of this name may hold a credential: its value is never shown."""
    return _SECRET.search(name) is not None


def is_reference(value: object) -> bool:
    """True for a reference to a secret, ``${file:PATH:KEY}`` or the like: it may be shown, and is looked up when used."""
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def has_credentials(text: str) -> bool:
    """True for a text with a password in it: ``http://me:secret@host``, ``jdbc:...?password=secret``."""
    return _CREDENTIALS.search(text) is not None


def without_credentials(text: str) -> str:
    """``text`` with its credentials hidden."""
    return _CREDENTIALS.sub(_without, text)


def _without(found: re.Match[str]) -> str:
    secret = found["assigned"] or found["signature"] or found["login"]
    return found[0].removesuffix(secret) + HIDDEN


def shown(name: str, value: object) -> str:
    """A value as messages may show it."""
    is_only_a_reference = isinstance(value, str) and _REFERENCE.fullmatch(value.strip()) is not None
    return HIDDEN if is_secret(name) and not is_only_a_reference else without_credentials(repr(value))


class Unshown(str):
    """A credential for a client library, which may log all of its settings: as one of them it is not shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)
