"""Log events: a name and fields, written as ``event=... key=value ...`` or as one JSON object a line; what Kafka Streams logs too
begins with its sentence, so that who knows that finds it.

Decides how a field looks in either form. A line is made from the fields when a handler formats it and is never parsed back:
values with spaces, quotes or control characters are quoted and escaped in the text, so no value can pass for a field or a line of
its own. Lines of libraries, and Kafka Streams' own sentences, stay text. JSON is chosen by ``tidemill.log.format=json``, or in a
program with ``handler.setFormatter(JsonLines())``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from tidemill.printable import printable, printable_lines

_PLAIN = re.compile(r"[^\s'\"=\[\]{},]+\Z")
_OWN = ("time", "level", "logger", "thread_name", "message", "exception")
_LONGEST_SENTENCE = 4_000


class LogEvent:
    """The message of a log record: ``log.info(LogEvent("task-assigned", task=task, thread=name))``.

    ``fields`` may hold any value; exceptions and ids are written as their text. ``from_`` is the field ``from``, a word
    that Python reserves. ``says``: Kafka Streams' own sentence for it, before the fields; ``message`` in JSON.
    """

    __slots__ = ("fields", "name", "says")

    def __init__(self, name: str, /, says: str = "", **fields: object) -> None:
        self.name, self.says = name, says
        self.fields = {key.removesuffix("_"): value for key, value in fields.items()}

    def __str__(self) -> str:
        says = [printable(self.says, longest=_LONGEST_SENTENCE)] if self.says else []
        return " ".join([*says, f"event={self.name}", *(f"{key}={as_text(value)}" for key, value in self.fields.items())])


class TextLines(logging.Formatter):
    """Lines of text in which a library's line or a sentence holds no control character but the line feeds between its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        return printable_lines(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, thread_name, then the event's own fields or ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; a field that JSON has no type for is its text."""
        at = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread_name": record.threadName,
        }
        if isinstance(record.msg, LogEvent):
            line["event"] = record.msg.name
            if record.msg.says:
                line["message"] = record.msg.says
            line |= {f"{key}_" if key in line or key in _OWN else key: _as_json(v) for key, v in record.msg.fields.items()}
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # A lone surrogate, of a name that is no text, would fail in the handler's stream.
        return json.dumps(line, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace").decode()


def as_text(value: object) -> str:
    """A value in a line of text: plain where it is one word, quoted and escaped where it is not."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{as_text(key)}: {as_text(of_key)}" for key, of_key in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(map(as_text, _in_order(value))) + "]"
    text = str(value)
    return text if _PLAIN.match(text) and text.isprintable() else repr(text)


def _as_json(value: object) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _as_json(of_key) for key, of_key in value.items()}
    if _is_list(value):
        return [_as_json(item) for item in _in_order(value)]
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    return str(value)


def _is_list(value: object) -> bool:
    return type(value) in (list, tuple, set, frozenset)  # not a NamedTuple, such as a task's id: it has a text of its own


def _in_order(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
