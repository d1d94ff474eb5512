"""Records that a batch skips, with or without a dead letter, and the headers of dead letters (KIP-1034).

Decides what a dead letter says; which records become one is decided by exception handlers. Letters are sent with the batch's
other records: under exactly_once_v2 they are committed with it, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.operators.exception_handlers import Refused
from tidemill.steps.rows.records import Records
from tidemill.task.raw_records import Headers

_PREFIX = "__streams.errors."


def error_headers(
    own: Sequence[tuple[str, bytes | None]], *, error: str, message: str, stacktrace: str, topic: str, partition: int,
    offset: int | None,
) -> Headers:  # fmt: skip
    """A record's own headers and those that say what was wrong with it: Kafka Streams' names, in its order, numbers as text."""
    said = {
        "exception": error,
        "message": message,
        "stacktrace": stacktrace,
        "topic": topic or None,  # null, as in Kafka Streams: of a punctuator, and of what has waited without its origin
        "partition": str(partition),
        "offset": str(-1 if offset is None else offset),
    }
    texts = ((name, None if text is None else text.encode(errors="backslashreplace")) for name, text in said.items())
    return [*own, *((_PREFIX + name, text) for name, text in texts)]


@dataclass(slots=True)
class PassedOver:
    """Records that exception handlers have skipped in a batch."""

    count: int = 0
    first: str = ""
    letters: Records = field(default_factory=Records.empty)

    def add(self, refused: Refused, key: bytes | None, value: bytes | None) -> None:
        """``key`` and ``value``: the source record's bytes, or the nearest to them that are known."""
        at = refused.context
        self.count += 1
        if not self.first:
            offset = f" at offset {at.offset}" if at.offset is not None and at.offset >= 0 else ""
            nowhere = "in a punctuator" if refused.data is None else f"a record that had waited since {at.timestamp}"
            where = f"{at.topic}-{at.partition}{offset}" if at.topic else nowhere
            task = "" if at.task is None else f"task {at.task}, "
            self.first = f"{task}{where}: {at.node} failed: {refused.error}: {refused.message}"
        if not refused.is_letter:
            return
        letters = self.letters
        letters.parts.append(at.partition if at.task is None else at.task.partition)
        letters.keys.append(key)
        letters.values.append(value)
        letters.timestamps.append(max(0, at.timestamp))
        letters.offsets.append(-1 if at.offset is None else at.offset)
        letters.sequences.append(len(letters.sequences))
        assert letters.headers is not None
        letters.headers.append(
            error_headers(
                at.headers, error=refused.error, message=refused.message, stacktrace=refused.stacktrace, topic=at.topic,
                partition=at.partition, offset=at.offset,
            )
        )  # fmt: skip

    @property
    def note(self) -> str:
        """For the log; empty if there is nothing to say."""
        return f"{self.count} records were skipped, the first: {self.first}" if self.count else ""
