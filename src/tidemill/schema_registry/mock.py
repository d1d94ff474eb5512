"""A registry for tests: ``mock://name``, as Confluent's serdes have it, one of this process and its workers without a server.

confluent-kafka keeps the schemas of such a registry in the memory of one process. The workers of a plan are other processes: they
would know none of a test's schemas, or give their numbers to others. So the schemas also stand in a file, one a line, in the
order in which they were registered; the order gives them their numbers. Serdes carry the file's name to the workers.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from confluent_kafka.schema_registry import RegisteredSchema, Schema
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

_Answer = TypeVar("_Answer")


class MockRegistryClient(MockSchemaRegistryClient):
    """``file``: where the schemas of all clients of this registry stand."""

    def __init__(self, conf: dict[str, Any], file: str) -> None:
        super().__init__(conf)
        self._file, self._read, self._count = file, 0, 0

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        with open(self._file, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            self._catch_up(file)
            registered = super().register_schema_full_response(subject_name, schema, normalize_schemas)
            if (registered.schema_id or 0) > self._count:
                file.write(json.dumps([subject_name, schema.to_dict()]).encode() + b"\n")
                self._count, self._read = self._count + 1, file.tell()
        return registered

    def get_schema(self, *args: Any, **options: Any) -> Schema:
        ask = super().get_schema
        return self._found(lambda: ask(*args, **options))

    def get_version(self, *args: Any, **options: Any) -> RegisteredSchema:
        ask = super().get_version
        return self._found(lambda: ask(*args, **options))

    def lookup_schema(self, *args: Any, **options: Any) -> RegisteredSchema:
        ask = super().lookup_schema
        return self._found(lambda: ask(*args, **options))

    def _found(self, ask: Callable[[], _Answer]) -> _Answer:
        """What this process knows, else what others have registered meanwhile."""
        try:
            return ask()
        except SchemaRegistryError:
            with open(self._file, "a+b") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._catch_up(file)
            return ask()

    def _catch_up(self, file: BinaryIO) -> None:
        file.seek(self._read)
        for line in file:
            subject, schema = json.loads(line)
            super().register_schema_full_response(subject, Schema.from_dict(schema))
            self._count += 1
        self._read = file.tell()
