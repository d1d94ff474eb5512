"""Instances without Kafka and Spark: stores as dicts, others reached without a network, and requests without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tidemill.config.slices import ReadsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.serdes import Serdes
from tidemill.errors import RetriableError
from tidemill.ids import TopicPartition
from tidemill.membership.wire import HostInfo
from tidemill.query.http_app import ReadsApp
from tidemill.query.metadata import HostMap, KeyQueryMetadata
from tidemill.query.position import Position
from tidemill.query.routing import Router
from tidemill.query.rows import FoundRows, Row, RowsQuestion, first_page
from tidemill.query.store_info import StoreInfo
from tidemill.task.progress import CopyProgress
from tidemill.topology.partitioning import partition_of_key

PARTITIONS = 3
TOPIC = "app-repartition"


def reads_config(*, max_staleness: int = 100, timeout_s: float = 30.0) -> ReadsConfig:
    settings = {
        "application.id": "app", "tidemill.http.max.staleness": max_staleness, "tidemill.http.timeout.ms": round(timeout_s * 1e3)
    }  # fmt: skip
    return StreamsConfig.read_slice(ReadsConfig, settings)


def store_info(name: str = "counts", key: Any = None, value: Any = None, **changes: Any) -> StoreInfo:
    info: dict[str, Any] = {
        "subtopology": 1,
        "key_serde": key or Serdes.string(),
        "value_serde": value or Serdes.long(),
        "timestamped": True,
        "changelog": f"app-{name}-changelog",
        "source_topics": (TOPIC,),
        "is_placed": True,
    }
    return StoreInfo(name=name, **{**info, **changes})


COUNTS = store_info()


def stored(store: StoreInfo, value: Any, timestamp_ms: int = 7) -> bytes:
    data = store.value_serde.serialize(value)
    assert data is not None
    return timestamp_ms.to_bytes(8, "big", signed=True) + data if store.timestamped else data


def host_map(active: Mapping[HostInfo, tuple[int, ...]], standby: Mapping[HostInfo, tuple[int, ...]] | None = None) -> HostMap:
    def inputs(by_host: Mapping[HostInfo, tuple[int, ...]]) -> dict[HostInfo, tuple[TopicPartition, ...]]:
        return {host: tuple(TopicPartition(TOPIC, number) for number in numbers) for host, numbers in by_host.items()}

    return HostMap(active=inputs(active), standby=inputs(standby or {}))


@dataclass
class StandInDirectory:
    """``copies``: partition -> how far behind it is (None: the active); ``entries``: what the whole application has."""

    own_host: HostInfo | None
    hosts: HostMap
    copies: dict[int, int | None]
    entries: dict[Any, Any] | list[tuple[Any, Any]] = field(default_factory=dict)
    stores: dict[str, StoreInfo] = field(default_factory=lambda: {"counts": COUNTS})
    fails: Exception | None = None
    placed: dict[bytes, int] = field(default_factory=dict)
    """Keys that stand where no partitioner says."""
    under_way: Sequence[CopyProgress] = ()
    position: Position = field(default_factory=Position)
    """Where its copies are."""
    age_ms: int = 0
    """How old its standbys are."""

    def progress(self) -> Sequence[CopyProgress]:
        return self.under_way

    def known_partition_count(self, store: StoreInfo) -> int | None:
        return None

    def partition_count(self, store: StoreInfo) -> int:
        if self.fails is not None:
            raise self.fails
        return PARTITIONS

    def owners(self, store: StoreInfo, partition: int) -> KeyQueryMetadata:
        return self.hosts.owners(store, partition)

    def read(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows:
        here = {p: lag for p, lag in self.copies.items() if p in question.partitions}
        covered = {p: lag or 0 for p, lag in here.items() if lag is None or (max_lag is not None and lag <= max_lag)}
        at, least = self.position.offsets, question.position.offsets
        is_young = question.most_age_ms is None or self.age_ms <= question.most_age_ms
        covered = {p: lag for p, lag in covered.items() if at.get(p, 0) >= least.get(p, 0) and (is_young or here[p] is None)}
        rows = []
        for key, value in self.entries.items() if isinstance(self.entries, dict) else self.entries:
            data = store.key_bytes(key)
            partition = self.placed.get(data, partition_of_key(data, PARTITIONS))
            is_within = (question.low is None or data >= question.low) and (question.high is None or data <= question.high)
            is_asked = data == question.key if question.key is not None else is_within
            if partition in covered and is_asked:
                rows.append(Row(data, stored(store, value), partition))
        found, more_from = first_page(sorted(rows), question)
        return FoundRows(rows=found, covered=covered, more_from=more_from, position=self.position.of(covered))


@dataclass
class StandInInstances:
    """Others by address; one that is missing is away. ``asked``: who was asked for what, in this order."""

    directories: dict[HostInfo, StandInDirectory] = field(default_factory=dict)
    asked: list[tuple[HostInfo, frozenset[int], int | None]] = field(default_factory=list)
    on_question: Callable[[], None] = lambda: None

    def read(
        self, host: HostInfo, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None, timeout_s: float
    ) -> FoundRows:
        self.asked.append((host, question.partitions, max_lag))
        self.on_question()
        if host not in self.directories:
            raise RetriableError("does not answer (ConnectionRefusedError: refused)")
        return self.directories[host].read(store, question, max_lag=max_lag)


def router(directory: StandInDirectory, remote: StandInInstances | None = None, timeout_s: float = 30.0) -> Router:
    return Router(directory=directory, remote=remote or StandInInstances(), timeout_s=timeout_s, **executors())


def executors() -> dict[str, Executor]:
    """A router's, by their names."""
    threads = {"here": 2, "there": 4, "pages_here": 1, "pages_there": 2}
    return {name: ThreadPoolExecutor(count, name) for name, count in threads.items()}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ReadsApp, target: str | bytes, *, method: str = "GET", headers: Mapping[str, str] | None = None, host: str = "localhost",
    on_send: Callable[[Any], object] = lambda _message: None,
) -> Reply:
    """One request, given to the application as a server would. ``on_send`` is called with each part of the answer."""
    raw = target.encode() if isinstance(target, str) else target
    path, _, query = raw.partition(b"?")
    pairs = [(b"host", host.encode()), *((n.lower().encode(), v.encode()) for n, v in (headers or {}).items())]
    scope = {
        "type": "http",
        "method": method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": pairs,
    }
    sent: list[Any] = []

    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(messages, None) or await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)
        on_send(message)

    asyncio.run(app(scope, receive, send))
    start, *parts = sent
    body = b"".join(part["body"] for part in parts)
    return Reply(start["status"], {n.decode(): v.decode() for n, v in start["headers"]}, body)
