"""Records that a batch skips, and their dead letters (KIP-1034).

Decides how letters wait until the batch's other records are sent, with which they go: under exactly_once_v2 they are committed
with it, or not at all. Which records are skipped, and what a letter says, is decided by exception handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.operators.exception_handlers import DeadLetter, ErrorContext, Refused
from tidemill.steps.outputs import Outputs, ToDeadLetters
from tidemill.steps.rows.records import ANY_PARTITION, Records


@dataclass(slots=True)
class Letters:
    """Dead letters, by topic, in the order in which they were written."""

    by_topic: dict[str, Records] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    def add(self, letter: DeadLetter, at: ErrorContext) -> None:
        """``at``: of the record that was skipped."""
        held = self.by_topic.setdefault(letter.topic, Records.empty(partitions=True))
        assert held.headers is not None
        assert held.partitions is not None
        held.parts.append(at.partition if at.task is None else at.task.partition)
        held.keys.append(letter.key)
        held.values.append(letter.value)
        held.timestamps.append(max(0, at.timestamp) if letter.timestamp is None else letter.timestamp)
        held.offsets.append(-1 if at.offset is None else at.offset)
        held.sequences.append(len(held.sequences))
        held.headers.append([(name, value) for name, value in letter.headers])
        held.partitions.append(ANY_PARTITION if letter.partition is None else letter.partition)

    def hand_over(self, outputs: Outputs) -> None:
        for topic, records in self.by_topic.items():
            outputs.add(ToDeadLetters(topic), records)


@dataclass(slots=True)
class PassedOver:
    """Records that exception handlers have skipped in a batch."""

    count: int = 0
    first: str = ""
    letters: Letters = field(default_factory=Letters)

    def add(self, refused: Refused) -> None:
        at = refused.context
        self.count += 1
        if not self.first:
            offset = f" at offset {at.offset}" if at.offset is not None and at.offset >= 0 else ""
            nowhere = f"a record that had waited since {at.timestamp}" if refused.has_waited else "in a punctuator"
            where = f"{at.topic}-{at.partition}{offset}" if at.topic else nowhere
            task = "" if at.task is None else f"task {at.task}, "
            self.first = f"{task}{where}: {at.node} failed: {refused.error}: {refused.message}"
        for letter in refused.letters:
            self.letters.add(letter, at)

    @property
    def note(self) -> str:
        """For the log; empty if there is nothing to say."""
        return f"{self.count} records were skipped, the first: {self.first}" if self.count else ""
