"""A group's committed offsets and an application's open transactions, which confluent-kafka's admin client can't give.

Offsets are read through a consumer that never joins the group. Not through librdkafka's admin client: where the group's
coordinator has moved or is still being made, that one looks for the consumer group of its own client, has none, and the
process dies of a segmentation fault. Decides nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from concurrent.futures import Future
from types import TracebackType

import kafka.errors as kafka_errors
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from kafka import KafkaAdminClient
from kafka.admin import TransactionState
from kafka.net.compat import KafkaNetClient

from tidemill.config.values import DataClientSettings, GroupClientSettings
from tidemill.errors import RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.security.rights import lacks
from tidemill.kafka.security.unlogged_logins import keep_logins_unlogged

_SLICE_S = 2.0
_TRANSACTIONS_LIMIT_MS = 10_000


class GroupOffsets:
    """``settings``: those of an admin client. Used by one thread, within a ``with`` block."""

    def __init__(self, settings: DataClientSettings, group: str) -> None:
        self._trouble: KafkaError | None = None
        # read_committed is what makes the brokers answer only with offsets that no open transaction may change.
        own = {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, **own, "log_level": 2, "error_cb": self._remember})

    def fetch(self, partitions: Collection[TopicPartition] | None, left_s: float) -> Future[list[ClientPartition]]:
        """The partitions (None: all that can be seen) with offset or error; done when it is returned."""
        done: Future[list[ClientPartition]] = Future()
        limit_s = min(left_s, _SLICE_S)
        try:
            if partitions is None:
                asked = [
                    ClientPartition(name, number)
                    for name, topic in self._consumer.list_topics(timeout=limit_s).topics.items()
                    for number in topic.partitions
                ]
            else:
                asked = [ClientPartition(tp.topic, tp.partition) for tp in partitions]
            done.set_result(self._consumer.committed(asked, timeout=limit_s) if asked else [])
        except KafkaException as problem:
            # Of a right that is missing on the group the call says nothing: it waits for a coordinator that doesn't come.
            message = self._consumer.poll(0)
            error = self._trouble if message is None else message.error()
            done.set_exception(problem if error is None or lacks(error) is None else KafkaException(error))
        return done

    def _remember(self, error: KafkaError) -> None:
        self._trouble = error

    def __enter__(self) -> GroupOffsets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()


def open_transactions(client_settings: GroupClientSettings, prefix: str) -> list[str]:
    """The transactional ids that begin with ``prefix`` and have a transaction under way, sorted.

    ``client_settings`` under kafka-python's names. RetriableError if the brokers did not answer, within 10 s for the first of
    them and as long again for all.
    """
    keep_logins_unlogged()
    opened: list[KafkaNetClient] = []

    def network(**settings: object) -> KafkaNetClient:
        opened.append(KafkaNetClient(**settings))
        return opened[0]

    limits = dict.fromkeys(("bootstrap_timeout_ms", "request_timeout_ms"), _TRANSACTIONS_LIMIT_MS)
    try:
        client = KafkaAdminClient(**{**client_settings, **limits, "kafka_client": network})
        listings = client.list_transactions(state_filters=[TransactionState.ONGOING.value])
    except kafka_errors.KafkaError as problem:
        raise RetriableError(f"the brokers did not say which transactions are open: {problem}") from problem
    finally:  # the network and its thread are there even if no broker was found, and so no client
        for one in opened:
            with contextlib.suppress(Exception):
                one.close()
    return sorted(
        listing.transactional_id
        for found in listings.values()
        for listing in found
        if listing.transactional_id.startswith(prefix)
    )
