"""How a store keeps a value beside its record's timestamp: Kafka Streams' layout.

    store kind    in the store                                in the changelog
    plain         value                                       value
    timestamped   timestamp (8 bytes, big endian) | value     value; the timestamp is the record's
"""

from __future__ import annotations

TIMESTAMP_SIZE = 8
