"""Connections that a producer has lost with requests under way: librdkafka says so in its log, and nowhere else.

Decides from a log line whether a request may still be on its way to a broker though it was sent again: the old transaction
protocol knows a late ``EndTxn`` from the next transaction's own only by the producer's epoch (KIP-890). A connection
that was never made carried nothing. All lines are passed on to Python's logging, as far as ``log_level`` lets them.
"""

from __future__ import annotations

import logging
import re

from tidemill.config.values import DataClientSettings
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.client")

_NOTED_LEVEL = 6
"""Syslog's "info": a closed connection is reported at this level, whatever was under way."""
_DEBUG_LEVEL = 7
_FAILED = re.compile(r"(FAIL|REQTMOUT)\b")
_NEVER_MADE = re.compile(r"in state (?!UP|REAUTH)[A-Z_]+")
_SYSLOG_LEVELS = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class ConnectionNotes:
    """A logger for confluent-kafka, which calls it while the producer is polled."""

    def __init__(self, settings: DataClientSettings) -> None:
        debugs = bool(settings.get("debug"))
        self._shown_level = int(settings.get("log_level", _DEBUG_LEVEL if debugs else _NOTED_LEVEL))
        self.settings = {"logger": self, "log_level": _DEBUG_LEVEL if debugs else _NOTED_LEVEL}
        """The producer's, over those of the user."""
        self.lost = ""
        """The first line that reports a lost connection, or nothing."""

    def log(self, level: int, text: str, *values: object) -> None:
        line = text % values if values else text
        if not self.lost and tells_of_a_lost_request(line):
            self.lost = line
        if _SYSLOG_LEVELS.get(level, _NOTED_LEVEL) <= self._shown_level:
            log.log(level, LogEvent("client", line=line))


def tells_of_a_lost_request(line: str) -> bool:
    return _FAILED.match(line) is not None and _NEVER_MADE.search(line) is None
