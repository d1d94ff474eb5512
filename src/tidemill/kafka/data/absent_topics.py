"""Topics that the brokers don't have, or don't know of yet.

Of a transaction's, librdkafka says that one is missing, and names others in its log.

Imports no admin client until it is asked, since workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException

from tidemill.config.values import DataClientSettings
from tidemill.kafka.security.rights import asking_client

HEARD_OF_LIMIT_S = 5.0
"""How long a topic that was just created may seem to be missing: a broker hears of it after the controller has made it."""
_ASK_LIMIT_S = 5.0


def absent_topics(topics: Iterable[str], settings: DataClientSettings) -> list[str]:
    """The topics that the brokers don't have; all of ``topics`` if brokers don't answer, or say that they have all."""
    suspects = sorted(topics)
    if len(suspects) < 2:
        return suspects
    try:
        there = asking_client(settings).list_topics(timeout=_ASK_LIMIT_S).topics
    except KafkaException:
        return suspects
    return [topic for topic in suspects if topic not in there] or suspects
