"""Read-only stores (KIP-813): a processor fills one from a source topic, which is its changelog, and others read it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.operators.step_harness import StepRun
from tests.steps.memory_stores import MemoryStores
from tidemill import ProcessorContext, Record, Serdes, Stores, TopologyBuilder
from tidemill.ids import TaskId
from tidemill.steps.commit.restored import restored_writes
from tidemill.steps.rows.schema import SCHEMA
from tidemill.topology.nodes import Store

STRING = Serdes.string()


class Fills:
    """Writes each record with its key, a versioned store with its time."""

    def __init__(self, *times: str) -> None:
        self.times = times

    def init(self, context: ProcessorContext) -> None:
        self.rows = context.store("rows")

    def process(self, record: Record) -> None:
        self.rows.put(record.key, record.value, *(getattr(record, time) for time in self.times))


class Reads:
    """Answers each record with the row of its key: of a versioned store the one as of its time."""

    def __init__(self, *times: str) -> None:
        self.times = times

    def init(self, context: ProcessorContext) -> None:
        self.context, self.rows = context, context.store("rows")

    def process(self, record: Record) -> None:
        read = self.rows.get_as_of if self.times else self.rows.get
        self.context.forward(record.with_value(str(read(record.key, *(getattr(record, time) for time in self.times)))))


def read_by(store: Store, *times: str) -> TopologyBuilder:
    topology = TopologyBuilder().add_read_only_state_store(store, "rows-in", "rows-topic", "fills", lambda: Fills(*times))
    topology.add_source("asked-in", "asked", key=STRING, value=STRING)
    topology.add_processor("reads", lambda: Reads(*times), "asked-in").connect_processor_and_state_stores("reads", "rows")
    return topology.add_sink("answers-out", "answers", "reads", key=STRING, value=STRING)


def answers(run: StepRun) -> list[bytes | None]:
    return [value for topic, _key, value, *_rest in run.written if topic == "answers"]


@pytest.mark.parametrize("one_batch", [True, False])
def test_others_read_what_the_stores_processor_has_written(one_batch: bool) -> None:
    run = StepRun(read_by(Stores.key_value_store("rows", key=STRING, value=STRING)).build())
    records = [
        ("asked", b"a", b"?", 1), ("rows-topic", b"a", b"one", 2), ("asked", b"a", b"?", 3), ("rows-topic", b"a", None, 4),
        ("asked", b"a", b"?", 5),
    ]  # fmt: skip
    for batch in [records] if one_batch else [[record] for record in records]:
        run.pipe(batch)
        run.replace_workers()
    assert answers(run) == [b"None", b"one", b"None"]
    assert run.logged == []


def test_a_versioned_one_is_read_as_of_a_time() -> None:
    run = StepRun(read_by(Stores.versioned_key_value_store("rows", 100, key=STRING, value=STRING), "timestamp").build())
    for at, value in ((10, b"ten"), (20, b"twenty"), (15, None)):
        run.pipe([("rows-topic", b"a", value, at)])
    for at in (9, 14, 15, 19, 20):
        run.pipe([("asked", b"a", b"?", at)])
    found = [text or b"" for text in answers(run)]
    assert [b"None" if text == b"None" else text[text.index(b"'") + 1 :].split(b"'")[0] for text in found] == [
        b"None", b"ten", b"None", b"None", b"twenty",
    ]  # fmt: skip


def test_it_is_restored_from_the_records_of_its_topic() -> None:
    run = StepRun(read_by(Stores.key_value_store("rows", key=STRING, value=STRING)).build())
    spec = run.compiled.steps[-1].stores["rows"]
    assert (spec.changelog, spec.source_topic) == (None, "rows-topic")
    task = TaskId(spec.subtopology, 0)
    rows = run.stores.setdefault(task, MemoryStores(task))
    log = [
        {"node": spec.tag, "part": 0, "off": at, "ts": at, "key": key, "value": value}
        for at, (key, value) in enumerate([(b"a", b"one"), (b"b", b"two"), (None, b"no key"), (b"b", None)])
    ]
    table = pa.Table.from_pylist([{name: record.get(name) for name in SCHEMA.names} for record in log], schema=SCHEMA)
    _, found = restored_writes(table, spec, {task: rows})[task]
    rows.apply({"rows": found}, {})
    run.pipe([("asked", b"a", b"?", 9), ("asked", b"b", b"?", 9)])
    assert answers(run) == [b"one", b"None"]
