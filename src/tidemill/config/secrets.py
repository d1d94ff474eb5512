"""Display of settings: all of a value, unless it holds a credential.

Decides by the setting's name, and where that says nothing by the value: an address may carry user and password. Everything that
shows a setting, in a message, a listing or when printed, asks ``shown``.
"""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_IN_ADDRESS = r"(?:(?<=https://)|(?<=http://))[^\s/'\"]+(?=@)|(?<=//)[^\s/'\":@]*:[^\s/'\"]*(?=@)"
SPARK_REDACTION = "spark.redaction.regex"
SPARK_REDACTED = f"(?i)passw|secret|jaas|token|credential|user.?info|(access|api)[._-]?key|private|{_IN_ADDRESS}"
"""Pattern of names and values of Spark settings that Spark does not show, and that are on no command line."""
_CREDENTIALS_IN_ADDRESS = re.compile(_IN_ADDRESS, re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}:]*:[^}]*\}")
_SECRET = re.compile(r"passw|secret|jaas|token|credential|user\.?info|keystore\.key|access\.?key|api\.?key|private")


def is_secret(name: str) -> bool:
    """True if a setting of this name may hold a credential: its value is never shown."""
    return _SECRET.search(name.lower()) is not None


def is_reference(value: object) -> bool:
    """True for a reference to a secret, ``${file:PATH:KEY}`` or the like: it may be shown, and is looked up when used."""
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def has_credentials(text: str) -> bool:
    """True for an address with user and password: ``http://me:secret@host``."""
    return _CREDENTIALS_IN_ADDRESS.search(text) is not None


def without_credentials(text: str) -> str:
    """The same with the part before the ``@`` of addresses hidden."""
    return _CREDENTIALS_IN_ADDRESS.sub(HIDDEN, text)


def shown(name: str, value: object) -> str:
    """A value as messages may show it."""
    is_only_a_reference = isinstance(value, str) and _REFERENCE.fullmatch(value.strip()) is not None
    return HIDDEN if is_secret(name) and not is_only_a_reference else without_credentials(repr(value))
