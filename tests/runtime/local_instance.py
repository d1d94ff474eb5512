"""An instance on the test's own Spark session, asked like an ``InstanceProcess``: for tests that kill no process.

A JVM and a Spark session of its own would be most of what such a test costs. Whose a line of the log is, is known by the thread
that has written it: the names of an instance's stream threads and of their clients' threads have its process id.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.runtime.instance_process import LIMIT_S, events_in, instance_settings, signal_workers, waited_for
from tests.runtime.wordcount_instance import look, wordcount
from tidemill.runtime.instance.application import KafkaStreams, State

_LOG = logging.getLogger("tidemill")


class LocalInstance:
    """One state directory, and the word count that runs on it now; ``start`` again after ``close``."""

    def __init__(
        self, spark: SparkSession, folder: Path, bootstrap_servers: str, application_id: str, *, settings: Mapping[str, object]
    ) -> None:
        self._spark = spark
        self._topics = f"{application_id}-input", f"{application_id}-output"
        self.state_dir = folder / "state"
        self._settings = instance_settings(bootstrap_servers, application_id, self.state_dir, settings)
        self._streams: KafkaStreams | None = None
        self._name = ""
        self._heard = _Heard()

    def start(self, *, paused: bool = False) -> None:
        """``paused``: from its beginning; it has tasks and neither processes nor restores anything."""
        _LOG.addHandler(self._heard)
        _LOG.setLevel(logging.INFO)
        self._streams = KafkaStreams(wordcount(*self._topics), self._settings, session=self._spark)
        if paused:
            self._streams.pause()
        self._streams.start()
        self._name = str(self._streams.process_id)

    @property
    def streams(self) -> KafkaStreams:
        assert self._streams is not None
        return self._streams

    def look(self) -> dict[str, Any]:
        return look(self.streams)

    def wait(self, claim: Callable[[dict[str, Any]], bool], what: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """How it stands when ``claim`` is true of it."""
        return waited_for(self.look, self.log_end, claim, what, limit_s)

    def wait_running(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        return self.wait(lambda at: at["state"] == State.RUNNING.value, "running", limit_s)

    def signal_workers(self, number: signal.Signals) -> None:
        signal_workers(self.look(), number)

    def close(self) -> None:
        assert self.streams.close(LIMIT_S), self.log_end()

    def end(self) -> None:
        if self._streams is not None:
            self._streams.close(LIMIT_S)
        _LOG.removeHandler(self._heard)
        _LOG.setLevel(logging.NOTSET)

    @property
    def log(self) -> str:
        return "\n".join(text for thread, text in [*self._heard.lines] if self._name in thread)

    def log_end(self) -> str:
        return self.log[-3000:]

    def events(self, name: str) -> list[dict[str, str]]:
        """The fields of each log line of this event."""
        return events_in(self.log, name)


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.threadName or "", record.getMessage()))
