"""Log records as lines of JSON, for those who collect them: ``tidemill.log.format=json``, or this formatter in any logging setup.

Tidemill's own lines are ``event=... key=value ...``; here each key becomes a field, numbers as numbers. What is no such line, a
library's or Kafka Streams' own sentences, is the field ``message``. A program sets it up with

    handler.setFormatter(JsonLines())
"""

from __future__ import annotations

import json
import logging
import re
from ast import literal_eval
from datetime import datetime, timezone
from typing import Any

_FIELD = re.compile(
    r"""(?P<key>[a-z_]+)=(?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\{[^{}]*\}|\[[^\[\]]*\]|\S*)(?:\s+|$)"""
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z")
_OWN = ("time", "level", "logger", "thread_name", "message", "exception")


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, thread_name, then the line's own fields or ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        told: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread_name": record.threadName,
        }
        text = record.getMessage()
        found = fields(text)
        if found is None:
            told["message"] = text
        else:
            told |= {f"{name}_" if name in _OWN else name: value for name, value in found.items()}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def fields(text: str) -> dict[str, Any] | None:
    """The keys and values of an ``event=...`` line; None for any other text. What follows the last pair is ``rest``."""
    if not text.startswith("event="):
        return None
    found: dict[str, Any] = {}
    at = 0
    while (pair := _FIELD.match(text, at)) is not None and pair.end() > at:
        found[pair["key"]] = _value(pair["value"])
        at = pair.end()
    if text[at:].strip():
        found["rest"] = text[at:].strip()
    return found


def _value(text: str) -> Any:
    if _NUMBER.match(text):
        return float(text) if "." in text else int(text)
    if text[:1] in ("'", '"', "{"):
        try:
            return literal_eval(text)
        except (ValueError, SyntaxError):
            return text
    return text
