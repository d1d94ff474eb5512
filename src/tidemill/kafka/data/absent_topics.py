"""Which of a transaction's topics the brokers don't have: librdkafka says that one is missing, and names others in its log.

Imports no admin client until it is asked, since workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException

from tidemill.config.values import DataClientSettings
from tidemill.kafka.security.rights import asking_client

_ASK_LIMIT_S = 5.0


def absent_topics(topics: Iterable[str], settings: DataClientSettings) -> list[str]:
    """Those of the topics that the brokers don't have, by their answer; all of them if there is none, or if it has them all."""
    suspects = sorted(topics)
    if len(suspects) < 2:
        return suspects
    try:
        there = asking_client(settings).list_topics(timeout=_ASK_LIMIT_S).topics
    except KafkaException:
        return suspects
    return [topic for topic in suspects if topic not in there] or suspects
