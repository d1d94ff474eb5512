"""Serdes whose schemas live in a schema registry: Avro and Protobuf in Confluent's wire format.

    registry = SchemaRegistry("http://localhost:8081")
    orders = builder.stream("orders", value=registry.avro(ORDER_SCHEMA))

The client and the formats are confluent-kafka's; the packages come with ``pip install tidemill[registry]``. Decides how a
schema becomes a Spark type (``avro``, ``protobuf``) and under which subject schemas stand: the record's full name
(RecordNameStrategy), since one serde may write several topics, changelogs among them, or the one that the program gives.
"""

from __future__ import annotations

from tidemill.schema_registry.registry import SchemaRegistry

__all__ = ["SchemaRegistry"]
