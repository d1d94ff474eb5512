"""Producer errors of librdkafka, and their meaning for the batch and the thread.

Decides the kind of error only, by the tree in ``tidemill.errors``: whether a transaction counts after an error is not
for an error code to say (see ``producer``). Missing rights are described by ``rights``.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from tidemill.errors import BatchLostError, CommitRefusedError, FencedError, StopError, TidemillError

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
_REFUSED_BY_THE_GROUP = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
_NO_ENTRY = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_NOT_VALID = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
_NO_TOPIC = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART})
_BAD_SETTING = frozenset(
    {
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
        KafkaError._STATE,
    }
)


def is_too_large(error: KafkaError) -> bool:
    """The broker refused a batch of records as too large: one of them, or all together."""
    return error.code() in _TOO_LARGE


def is_not_valid(error: KafkaError) -> bool:
    """The broker refused one record because of its contents."""
    return error.code() in _NOT_VALID


def is_consequence(error: KafkaError) -> bool:
    """The record was not written because of other records."""
    return error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._INVALID_DIFFERENT_RECORD)


def lacks_topic(error: KafkaError) -> bool:
    """The broker has no such topic, or no such partition of it."""
    return error.code() in _NO_TOPIC


def meaning_of(error: KafkaError, doing: str) -> TidemillError:
    """The error to raise, or to keep, when ``doing`` (a few words: "committing", "writing to orders") failed."""
    code = error.code()
    said = f"{doing}: {error.str()} ({error.name()})"
    if code in _FENCED:
        return FencedError(f"{said}: another producer or member has taken over; rejoin and make a new producer.")
    if code in _REFUSED_BY_THE_GROUP:
        return CommitRefusedError(f"{said}: the group refuses the offsets; go back to the committed ones.")
    if code in _NO_ENTRY:
        return StopError(f"{said}: the brokers don't let the producer in any more; check the login and start again.")
    if code in _TOO_LARGE:
        return StopError(
            f"{said}: a record is larger than allowed; raise max.message.bytes of the topic and max.request.size of "
            f"the producer, or write smaller records."
        )
    if lacks_topic(error):
        return StopError(
            f"{said}: the topic or partition does not exist; create it and start again. The application's own (a changelog or a "
            "repartition topic) is created when an instance starts, by the one that leads the group: all run the same topology."
        )
    if code == KafkaError.OFFSET_METADATA_TOO_LARGE:
        return StopError(f"{said}: the times of partitions are committed, too; raise the brokers' offset.metadata.max.bytes.")
    if code == KafkaError.INVALID_RECORD:  # the client's for several timestamps at once, too
        return StopError(
            f"{said}: the broker refuses the record for good. In a compacted topic it needs a key. Its timestamp must be within "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the broker's time: raise them, or "
            "give the record another timestamp (timestamp_extractor)."
        )
    if code == KafkaError.INVALID_TIMESTAMP:
        return StopError(
            f"{said}: the record's timestamp is too far from the broker's time; raise message.timestamp.before.max.ms or "
            "message.timestamp.after.max.ms of the topic, or give the record another timestamp (timestamp_extractor)."
        )
    if code == KafkaError.TOPIC_EXCEPTION:
        return StopError(f"{said}: the broker refuses the record for good.")
    if code in _BAD_SETTING:
        return StopError(f"{said}: trying again can't help; check transaction.timeout.ms and the brokers' version.")
    return BatchLostError(f"{said}: go back to the committed offsets and run the batch again.")
