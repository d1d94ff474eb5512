"""Applications on brokers with TLS, logins and ACLs: who may what, what kafka-acls would do, and a WordCount in between."""

from __future__ import annotations

import itertools
import re
import shlex
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.waiting import until
from tidemill import Serdes, StreamsBuilder
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.runtime.instance.application import KafkaStreams, State

PASSWORD = "marked-secret-of-app"
LIMIT_S = 240.0
LINES = ("the tide turns the mill", "the mill turns the stone", "stone by stone")
_TYPES = {
    "--topic": ResourceType.TOPIC, "--group": ResourceType.GROUP, "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}  # fmt: skip
_NAMES = {"DescribeConfigs": "DESCRIBE_CONFIGS", "IdempotentWrite": "IDEMPOTENT_WRITE"}
Right = tuple[str, str, str, str]
"""Option of kafka-acls, name, "literal" or "prefixed", operation."""


@lru_cache
def _operator(servers: str) -> AdminClient:
    """Kept: what an admin client was asked for is given up when it goes."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


@dataclass(frozen=True)
class Secured:
    """An application's place on a secured broker. ``login``: its settings under Kafka's Java names."""

    broker: EmbeddedBroker
    spark: SparkSession | None
    folder: Path
    name: str
    principal: str
    login: dict[str, str]

    # --- the operator's side -------------------------------------------------------------------------------------------

    @property
    def operator(self) -> AdminClient:
        return _operator(self.broker.internal_servers)

    def topic(self, end: str) -> str:
        return f"{end}-of-{self.name}"

    def create(self, *ends: str) -> None:
        topics = [NewTopic(self.topic(end), 2, 1) for end in ends or ("in", "out")]
        for made in self.operator.create_topics(topics).values():
            made.result(LIMIT_S)

    def all_rights(self) -> set[Right]:
        """What docs/security.md says that an application needs."""
        own = f"{self.name}-"
        return {
            ("--topic", self.topic("in"), "literal", "Read"),
            ("--topic", self.topic("out"), "literal", "Write"),
            *(("--topic", own, "prefixed", operation) for operation in ("Create", "Read", "Write", "Delete")),
            ("--group", self.name, "literal", "Read"),
            ("--transactional-id", own, "prefixed", "Write"),
        }

    def grant(self, rights: Iterable[Right]) -> None:
        bindings = [self._binding(right) for right in rights]
        for future in self.operator.create_acls(bindings).values():
            future.result(LIMIT_S)
        for given in bindings:
            assert until(lambda given=given: self._is_granted(given)), given

    def withdraw(self, *rights: Right) -> None:
        for option, name, pattern, operation in rights:
            filtered = AclBindingFilter(
                _TYPES[option], name, ResourcePatternType[pattern.upper()], self.principal, None,
                AclOperation[_NAMES.get(operation, operation.upper())], AclPermissionType.ALLOW,
            )  # fmt: skip
            for future in self.operator.delete_acls([filtered]).values():
                future.result(LIMIT_S)
            assert until(lambda filtered=filtered: not self._is_granted(filtered)), filtered

    def follow(self, sentence: str) -> int:
        """Carries out each kafka-acls command of a sentence; how many rights it granted."""
        given = 0
        for command in re.findall(r"kafka-acls ([^;]+)", sentence):
            words = shlex.split(command)
            options = dict(itertools.pairwise(words))
            assert options["--bootstrap-server"] == self.broker.bootstrap_servers
            assert options["--allow-principal"] == self.principal
            assert "--add" in words
            operations = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
            pattern = options.get("--resource-pattern-type", "literal")
            names = [(word, words[at + 1]) for at, word in enumerate(words) if word in _TYPES and word != "--cluster"]
            names += [("--cluster", "kafka-cluster")] if "--cluster" in words else []
            rights = [(option, name, pattern, operation) for option, name in names for operation in operations]
            self.grant(rights)
            given += len(rights)
        return given

    def _binding(self, right: Right) -> AclBinding:
        option, name, pattern, operation = right
        return AclBinding(
            _TYPES[option], name, ResourcePatternType[pattern.upper()], self.principal, "*",
            AclOperation[_NAMES.get(operation, operation.upper())], AclPermissionType.ALLOW,
        )  # fmt: skip

    def _is_granted(self, asked: AclBinding | AclBindingFilter) -> bool:
        """As the broker's authorizer has it, which reads the cluster's metadata log a moment after the controller has written."""
        same = AclBindingFilter(
            asked.restype, asked.name, asked.resource_pattern_type, asked.principal, asked.host, asked.operation,
            asked.permission_type,
        )  # fmt: skip
        return bool(self.operator.describe_acls(same).result(LIMIT_S))

    def send(self, lines: Iterable[str] = LINES) -> None:
        producer = Producer({"bootstrap.servers": self.broker.internal_servers, "log_level": 0})
        for number, line in enumerate(lines):
            producer.produce(self.topic("in"), line.encode(), partition=number % 2)
        assert producer.flush(LIMIT_S) == 0

    def counts(self, expected: Counter[str], is_over: Callable[[], bool] = lambda: False) -> dict[str, int]:
        """What stands in the output once it is as expected, or when ``is_over``, or after the limit."""
        settings = {"bootstrap.servers": self.broker.internal_servers, "group.id": "reads without a group", "log_level": 0}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic("out"), number, 0) for number in (0, 1)])
        found: dict[str, int] = {}
        deadline = time.monotonic() + LIMIT_S
        while found != dict(expected) and not is_over() and time.monotonic() < deadline:
            for message in consumer.consume(100, 0.2):
                if message.error() is None:
                    found[message.key().decode()] = struct.unpack(">q", message.value())[0]
        consumer.close()
        return found

    # --- the application -----------------------------------------------------------------------------------------------

    def application(self, **settings: object) -> KafkaStreams:
        builder = StreamsBuilder()
        lines = builder.stream(self.topic("in"), key=Serdes.string(), value=Serdes.string())
        words = lines.flat_map_values(lambda line: F.split(line, " "))
        counts = words.group_by(lambda _, word: word, key=Serdes.string()).count(store="counts")
        counts.to_stream().to(self.topic("out"))
        config: dict[str, object] = {
            "application.id": self.name,
            "bootstrap.servers": self.broker.bootstrap_servers,
            "state.dir": str(self.folder / self.name),
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "tidemill.test.short.intervals": True,
            **{f"kafka.{name}": value for name, value in self.login.items()},
            **settings,
        }
        return KafkaStreams(builder, config, session=self.spark)

    def run_until(self, streams: KafkaStreams, *states: State) -> str:
        """Starts; what the instance says when it has ended in ERROR, "" if it got to one of the states."""
        try:
            streams.start()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if streams.wait(*states, State.ERROR, timeout=LIMIT_S) is State.ERROR:
            return f"{type(streams.error).__name__}: {streams.error}"
        assert streams.state in states, f"neither in {states} nor in ERROR after {LIMIT_S} s: {streams.state}"
        return ""


def words_of(lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split(" "))
