"""Output of a stream thread: one Kafka transaction a batch, or, at least once, one flush.

Decides what a producer's outcome means for the batch, in the terms of the last step. ``leaves_out``: a handler may want to go on
without a record that the broker refuses, so it must be known which one that is. How records are produced, committed and
fenced is ``producer``'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import ClassVar

from tidemill.config.values import DataClientSettings
from tidemill.errors import BatchLostError, CommitRefusedError, ConfigError, RetriableError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.data.producer import CommitOutcome, FlushingProducer, TransactionalProducer
from tidemill.kafka.group.metadata import OffsetAndMetadata, group_metadata_bytes
from tidemill.task.batch import CommittingMember, Positions
from tidemill.task.partition_time import PartitionTime, Times, metadata_of
from tidemill.task.raw_records import RecordColumns


@contextlib.contextmanager
def _batch_terms() -> Iterator[None]:
    """Turns errors into those of a batch: BatchLostError for what may work later, StopError for a wrong setting."""
    try:
        yield
    except RetriableError as error:
        raise BatchLostError(str(error)) from error
    except ConfigError as error:
        raise StopError(str(error)) from error


class _Output:
    is_transactional: ClassVar[bool]

    def __init__(self, producer: TransactionalProducer | FlushingProducer) -> None:
        self._producer = producer

    def prepare(self) -> None:
        if self._producer.must_init:
            with _batch_terms():
                self._producer.init()

    def renew(self) -> None:
        """The producer is fenced: the next ``prepare`` or ``begin`` makes another one."""
        self._producer.close()

    def begin(self) -> None:
        with _batch_terms():
            self._producer.begin()

    def produce(self, topic: str, records: RecordColumns) -> None:
        with _batch_terms():
            self._producer.write(topic, records)

    def flush(self) -> None:
        with _batch_terms():
            self._producer.flush()

    def partitions_of(self, topic: str) -> int:
        with _batch_terms():
            return self._producer.partitions_of(topic)

    def abort(self) -> None:
        self._producer.abort()

    def _committed(self) -> Mapping[TopicPartition, int]:
        with _batch_terms():
            if self._producer.commit() is not CommitOutcome.COMMITTED:
                failure = self._producer.failure or BatchLostError("the commit was not confirmed")
                # Refused is what was never asked to be committed; of this batch nothing is known.
                raise BatchLostError(str(failure)) if isinstance(failure, CommitRefusedError) else failure
        return dict(self._producer.ends)


class ExactlyOnceOutput(_Output):
    """A transactional producer; its transaction holds outputs, changelog records and the input offsets."""

    is_transactional = True

    def __init__(
        self, settings: DataClientSettings, group_id: str, transactional_id: str, *, leaves_out: bool = False
    ) -> None:
        self._transactional = TransactionalProducer(settings, transactional_id=transactional_id, leaves_out=leaves_out)
        super().__init__(self._transactional)
        self._group_id = group_id

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        """CommitRefusedError: the transaction is aborted, and was never asked to be committed."""
        if offsets:
            said = {tp: OffsetAndMetadata(at, metadata_of(times.get(tp, PartitionTime()))) for tp, at in offsets.items()}
            group = group_metadata_bytes(self._group_id, membership.generation, membership.member_id, membership.instance_id)
            with _batch_terms():
                self._transactional.send_offsets(said, group)
        return self._committed()

    def continues(self, changelog: TopicPartition, position: int) -> bool:
        """Always: a producer that another one has followed is fenced."""
        del changelog, position
        return True


class AtLeastOnceOutput(_Output):
    """The batch counts when everything is acknowledged; the driver commits the offsets afterwards."""

    is_transactional = False

    def __init__(self, settings: DataClientSettings, *, leaves_out: bool = False) -> None:
        self._flushing = FlushingProducer(settings, leaves_out=leaves_out)
        super().__init__(self._flushing)

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        del offsets, times, membership
        return self._committed()

    def continues(self, changelog: TopicPartition, position: int) -> bool:
        return self._flushing.fills(changelog, position)
