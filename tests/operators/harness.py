"""Runs programs of the vectors on ``TaskGraph`` with rows in memory, as the TopologyTestDriver does, and compares.

All sub-topologies run as one task. Each input, with all that it makes through repartition topics, is finished before the
next; of the topics that wait, the one whose first record is the oldest goes first. A program is a function
``def program_name(b: StreamsBuilder) -> None`` named as in the vectors.
"""

from __future__ import annotations

import bisect
import gzip
import json
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.operators.vector_values import reader, writer
from tidemill import Serdes, StreamsBuilder
from tidemill.ids import TaskId
from tidemill.java_collections.priority_queue import JavaPriorityQueue
from tidemill.operators.context import RecordMetadata
from tidemill.operators.task_graph import TaskGraph
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import SourceNode, StoreKind, Topology
from tidemill.topology.windows import Windowed

VECTORS = Path(__file__).parents[1] / "vectors"
ALL = os.environ.get("TIDEMILL_ALL_VECTORS") == "1"
CASES_PER_PROGRAM = 2
TASK = TaskId(0, 0)
DEFAULT_SERDE: Any = Serdes.string()
Case = dict[str, Any]
Program = Callable[[StreamsBuilder], None]


class MemoryRows:
    """Rows in a sorted list of keys and a dict; keeps what is logged."""

    def __init__(self, logged: bool = True) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.logged: list[tuple[bytes, bytes | None, int | None, Any]] = []
        self._keys: list[bytes] = []
        self._is_logged = logged

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: bytes, row: bytes | None) -> None:
        if row is None:
            if self.rows.pop(key, None) is not None:
                del self._keys[bisect.bisect_left(self._keys, key)]
            return
        if key not in self.rows:
            bisect.insort(self._keys, key)
        self.rows[key] = row

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        first = 0 if low is None else bisect.bisect_left(self._keys, low)
        last = len(self._keys) if high is None else bisect.bisect_left(self._keys, high)
        found = [(key, self.rows[key]) for key in self._keys[first:last]]
        return reversed(found) if reverse else iter(found)

    def entries(self) -> int:
        return len(self.rows)

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Any = ()) -> None:
        if self._is_logged:
            self.logged.append((key, value, timestamp, headers))


class WaitingTopics:
    """Records that wait in topics; of the topics' first records the oldest is taken, of equals as PartitionGroup takes them."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Any]] = {}
        self._queue: JavaPriorityQueue[str] = JavaPriorityQueue()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, record: Any) -> None:
        """Adds (topic, key, value, timestamp, headers)."""
        waiting = self._waiting.setdefault(record[0], deque())
        waiting.append(record)
        if len(waiting) == 1:
            self._queue.add(record[3], record[0])

    def take(self) -> Any:
        """The record that is next."""
        waiting = self._waiting[self._queue.poll()]
        record = waiting.popleft()
        if waiting:
            self._queue.add(waiting[0][3], record[0])
        return record


@dataclass
class Run:
    """A topology that runs: what it has written to topics and stores so far, and what caused it."""

    topology: Topology
    graph: TaskGraph
    rows: dict[str, MemoryRows]
    written: list[tuple[str, bytes | None, bytes | None, int, Any, int]] = field(default_factory=list)
    """(topic, key, value, timestamp, headers, at) in order."""
    logged: list[tuple[str, bytes, bytes | None, int | None, Any, int]] = field(default_factory=list)
    """(store, key, value, timestamp, headers, at) in order."""
    dropped_at: list[int] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)

    def pipe(self, at: int, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Any = ()) -> None:
        self._finish(at, [(topic, key, value, timestamp, headers)])

    def advance_wall_clock(self, at: int, by_ms: int) -> None:
        self.graph.advance_wall_clock(self.graph.wall_clock + by_ms)
        self._finish(at, self._collect(at))

    def _finish(self, at: int, first: list[tuple[str, bytes | None, bytes | None, int, Any]]) -> None:
        waiting = WaitingTopics()
        todo = first
        while True:
            for record in todo:
                waiting.add(record)
            if not waiting:
                return
            topic, key, value, timestamp, headers = waiting.take()
            before = self.graph.dropped
            offset = self.offsets[topic] = self.offsets.get(topic, -1) + 1
            self.graph.read(self._source(topic), RecordMetadata(topic, 0, offset), key, value, timestamp, headers)
            self.dropped_at += [at] * (self.graph.dropped - before)
            todo = self._collect(at)

    def _collect(self, at: int) -> list[tuple[str, bytes | None, bytes | None, int, Any]]:
        """Notes what was written; what the program reads itself is to be processed."""
        again = []
        self.graph.flush()
        for made in self.graph.take_produced():
            record = made.record
            self.written.append((made.topic, made.key, made.value, record.timestamp, record.headers, at))
            if self._reads(made.topic):
                again.append((made.topic, made.key, made.value, record.timestamp, record.headers))
        for store, rows in self.rows.items():
            self.logged += [(store, *entry, at) for entry in rows.logged]
            rows.logged.clear()
        return again

    def _reads(self, topic: str) -> bool:
        return any(isinstance(node, SourceNode) and topic in node.topics for node in self.topology.nodes.values())

    def _source(self, topic: str) -> str:
        return next(n.name for n in self.topology.nodes.values() if isinstance(n, SourceNode) and topic in n.topics)


def without_caches(topology: Topology) -> Topology:
    """As ``statestore.cache.max.bytes=0`` makes it."""
    return replace(topology, stores={name: replace(store, caching=False) for name, store in topology.stores.items()})


def start(topology: Topology, wall_clock: int = 0, emit_interval_ms: int = 0) -> Run:
    rows: dict[str, MemoryRows] = {}

    def rows_of(name: str) -> MemoryRows:
        store = topology.stores[name]
        return rows.setdefault(name, MemoryRows(store.logged and store.source_topic is None))

    graph = TaskGraph(
        topology, TASK, rows=rows_of, default_serdes=KeyValueSerdes(key=DEFAULT_SERDE, value=DEFAULT_SERDE),
        wall_clock=wall_clock, emit_interval_ms=emit_interval_ms,
    )
    return Run(topology, graph, rows)


def topology_of(program: Program, config: dict[str, Any]) -> Topology:
    """A program as a case's config makes it."""
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build(optimization=config["topology.optimization"])
    return topology if config["statestore.cache.max.bytes"] else without_caches(topology)


def run_case(program: Program, case: Case) -> Run:
    """Pipes all inputs of a case through a program."""
    config = case["config"]
    run = start(topology_of(program, config), config["wall_clock_start_ms"], config["emit_interval_ms"])
    serdes = case["serdes"]["inputs"] if "serdes" in case else {}
    for given in case["inputs"]:
        if "advance_wall_clock_ms" in given:
            run.advance_wall_clock(given["seq"], given["advance_wall_clock_ms"])
            continue
        kinds = serdes.get(given["topic"], {"key": "String", "value": "String"})
        headers = tuple((name, text.encode()) for name, text in given.get("headers", {}).items())
        run.pipe(
            given["seq"], given["topic"], writer(kinds["key"])(given["key"]), writer(kinds["value"])(given["value"]),
            given["timestamp"], headers,
        )
    return run


def outputs_of(run: Run, case: Case) -> dict[str, list[dict[str, Any]]]:
    """What the run wrote to the case's output topics, in the vectors' form."""
    found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in case["outputs"]}
    for topic, key, value, timestamp, headers, at in run.written:
        if topic not in found:
            continue
        kinds = case["serdes"]["outputs"][topic]
        record = {"key": reader(kinds["key"])(key), "value": reader(kinds["value"])(value), "timestamp": timestamp, "at": at}
        if headers:
            record["headers"] = [[name, None if data is None else data.hex()] for name, data in headers]
        found[topic].append(record)
    return found


def stores_of(run: Run, case: Case) -> dict[str, Any]:
    """The rows of the stores that the case shows, as multisets in the vectors' form; kinds without rows are left out."""
    return {name: sorted(_rows_of(run, name), key=json.dumps) for name, kept in case["stores"].items() if "rows" in kept}


def compare(run: Run, case: Case) -> list[str]:
    """How the run differs from the case; empty if it does not.

    Without caches and with one partition every update and its order must match, whatever the case's ``match``.
    """
    problems = []
    found = outputs_of(run, case)
    for topic, records in case["outputs"].items():
        expected = [{name: value for name, value in record.items() if name != "headers" or value} for record in records]
        if found[topic] != expected:
            at = next((i for i, pair in enumerate(zip(found[topic], expected, strict=False)) if pair[0] != pair[1]),
                      min(len(found[topic]), len(expected)))
            problems.append(
                f"{topic}: record {at} of {len(expected)} is {found[topic][at:at + 1]}, expected {expected[at:at + 1]}"
                f" ({len(found[topic])} found)"
            )
    stores = stores_of(run, case)
    for name, rows in stores.items():
        expected = sorted(case["stores"][name]["rows"], key=json.dumps)
        if rows != expected:
            problems.append(f"store {name}: rows are {rows[:6]}, expected {expected[:6]}")
    problems += _history_problems(run, case)
    dropped = case["dropped_records"]
    if run.dropped_at != dropped["at"]:
        problems.append(f"dropped at {run.dropped_at[:20]}, expected {dropped['at'][:20]}")
    return problems


def _history_problems(run: Run, case: Case) -> list[str]:
    """Versioned stores' answers as of times."""
    problems = []
    for name, kept in case["stores"].items():
        for asked in kept.get("history", ()):
            found = run.graph.store(name).get_as_of(asked["key"], asked["as_of"])
            expected = None if asked["value"] is None else (asked["value"], asked["timestamp"])
            if found != expected:
                problems.append(f"store {name}: {asked['key']!r} as of {asked['as_of']} is {found}, expected {expected}")
    return problems


def _rows_of(run: Run, name: str) -> Iterator[dict[str, Any]]:
    """The rows that the store shows to a reader (``ROW_FORMS``)."""
    described = run.topology.stores[name]
    if described.kind is StoreKind.SUBSCRIPTIONS:
        return _subscription_rows(run.rows[name], described.value_serde)
    rows = ROW_FORMS[described.kind](run.graph.store(name))
    return ({**row, "timestamp": -1} for row in rows) if described.retain_duplicates else rows


def _key_value_rows(store: Any) -> Iterator[dict[str, Any]]:
    return ({"key": key, "value": value} for key, value in store.all())


def _timestamped_rows(store: Any) -> Iterator[dict[str, Any]]:
    return ({"key": key, "value": value, "timestamp": timestamp} for key, (value, timestamp) in store.all())


def _windowed_rows(store: Any) -> Iterator[dict[str, Any]]:
    return ({**windowed(key), "value": value} for key, value in store.all())


def _timestamped_windowed_rows(store: Any) -> Iterator[dict[str, Any]]:
    return ({**windowed(key), "value": value, "timestamp": timestamp} for key, (value, timestamp) in store.all())


def _waiting_rows(store: Any) -> Iterator[dict[str, Any]]:
    for waiting in (store.read(row_key, row) for _time, _is_left, row_key, row in store.rows()):
        side = "left" if waiting.is_left else "right"
        for value in waiting.values:
            yield {"key": {"key": waiting.key, "timestamp": waiting.timestamp, "side": side}, "value": value}


_INSTRUCTIONS = (
    "DELETE_KEY_NO_PROPAGATE", "DELETE_KEY_AND_PROPAGATE", "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
    "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
)  # fmt: skip


def _subscription_rows(rows: MemoryRows, serde: Any) -> Iterator[dict[str, Any]]:
    """Keys as bytes, values as Java's text of them."""
    read = serde.with_inner(Serdes.string()).deserialize
    for key, row in rows.scan():
        subscription = read(row[8:])
        first, second = struct.unpack(">qq", subscription.hash)
        text = (
            f"SubscriptionWrapper{{version=1, primaryKey={subscription.primary_key}, instruction="
            f"{_INSTRUCTIONS[subscription.instruction]}, hash=[{first}, {second}], primaryPartition={subscription.partition}}}"
        )
        yield {"key": "hex:" + key.hex(), "value": text, "timestamp": struct.unpack(">q", row[:8])[0]}


ROW_FORMS: dict[StoreKind, Callable[[Any], Iterator[dict[str, Any]]]] = {
    StoreKind.KEY_VALUE: _key_value_rows,
    StoreKind.TIMESTAMPED_KEY_VALUE: _timestamped_rows,
    StoreKind.VERSIONED: _timestamped_rows,
    StoreKind.WINDOW: _windowed_rows,
    StoreKind.TIMESTAMPED_WINDOW: _timestamped_windowed_rows,
    StoreKind.SESSION: _windowed_rows,
    StoreKind.OUTER_JOIN: _waiting_rows,
}
"""How the vectors show the rows of each kind of store; other areas add theirs."""


def windowed(key: Windowed) -> dict[str, Any]:
    """A windowed key as the vectors write it."""
    return {"key": key.key, "start": key.start, "end": key.end}


@cache
def cases() -> dict[str, list[Case]]:
    """All cases of the semantics vectors by program."""
    found: dict[str, list[Case]] = {}
    with gzip.open(VECTORS / "semantics.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            found.setdefault(case["program"], []).append(case)
    return found


@cache
def formats() -> dict[str, Case]:
    """The cases of the store formats by program."""
    with gzip.open(VECTORS / "store_formats.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {case["program"]: case for case in map(json.loads, lines)}


def programs_in(module: Any) -> dict[str, Program]:
    """The programs of a module: its functions that are named as a program of the vectors."""
    return {name: getattr(module, name) for name in cases() if hasattr(module, name)}


@cache
def all_programs() -> dict[str, Program]:
    """Every program of the vectors, from the modules ``programs_*`` next to this one."""
    modules = sorted(f"tests.operators.{path.stem}" for path in Path(__file__).parent.glob("programs_*.py"))
    found = {name: program for module in modules for name, program in programs_in(import_module(module)).items()}
    assert found.keys() == cases().keys(), f"no module has {sorted(cases().keys() - found.keys())}: they would not be tested"
    return found


def problems_of(program: Program) -> list[str]:
    """All differences of a program over its cases (two of them, or all with TIDEMILL_ALL_VECTORS=1)."""
    known = cases()[program.__name__]
    return [
        f"case {case['case']}: {problem}"
        for case in (known if ALL else known[:CASES_PER_PROGRAM])
        for problem in compare(run_case(program, case), case)
    ]
