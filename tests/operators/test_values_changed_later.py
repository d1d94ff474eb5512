"""A value that a processor changes after it has put or forwarded it: both are bytes by then, and stay as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.harness import start
from tests.operators.step_harness import StepRun
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.materialized import Materialized
from tidemill.dsl.stores import Stores
from tidemill.operators.processors import ProcessorContext
from tidemill.operators.record import Record

STRING, SEEN = Serdes.string(), Serdes.json("words array<string>")
Read = Callable[[Any, Record], Any]
Write = Callable[[Any, Record, Any], None]


class _Collects:
    def __init__(self, read: Read, write: Write) -> None:
        self.read, self.write = read, write

    def init(self, context: ProcessorContext) -> None:
        self.context, self.kept = context, context.store("s")

    def process(self, record: Record) -> None:
        seen = self.read(self.kept, record) or {"words": []}
        seen["words"].append(record.value)
        if record.value != "not-put":
            self.write(self.kept, record, seen)
        self.context.forward(record.with_value(seen))
        seen["words"].append("later")


def _value(found: Any) -> Any:
    return None if found is None else found.value


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(("kind", "more", "read", "write"), [
    (Stores.key_value_store, (), lambda s, r: s.get(r.key), lambda s, r, v: s.put(r.key, v)),
    (Stores.timestamped_key_value_store, (), lambda s, r: _value(s.get(r.key)), lambda s, r, v: s.put(r.key, v, r.timestamp)),
    (Stores.window_store, (60_000, 1_000), lambda s, r: s.fetch(r.key, 0), lambda s, r, v: s.put(r.key, v, 0)),
])  # fmt: skip
def test_what_was_put_and_forwarded_does_not_change_with_the_value(
    kind: Any, more: tuple[int, ...], read: Read, write: Write, persistent: bool
) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(kind("s", *more, key=STRING, value=SEEN, persistent=persistent))
    builder.stream("in", key=STRING, value=STRING).process(lambda: _Collects(read, write), "s").to("out", value=SEEN)
    run = start(builder.build())
    for at, word in enumerate(("a", "b", "not-put", "c")):
        run.pipe(at, "in", b"k", word.encode(), at)
    assert [json.loads(value)["words"] for _topic, _key, value, *_rest in run.written if value is not None] == [
        ["a"], ["a", "b"], ["a", "b", "not-put"], ["a", "b", "c"],
    ]  # fmt: skip


def test_a_record_cache_forwards_the_value_that_was_stored() -> None:
    """And not the object, which the processor has changed for other keys before the batch ends."""

    class Collects:
        def init(self, context: ProcessorContext) -> None:
            self.context, self.seen = context, {"words": list[str]()}

        def process(self, record: Record) -> None:
            self.seen["words"].append(record.value)
            self.context.forward(record.with_value(self.seen))

    builder = StreamsBuilder()
    seen = builder.stream("in", key=STRING, value=STRING).process_values(Collects, value=SEEN)
    seen.to_table(store=Materialized(name="last", key=STRING, value=SEEN)).to_stream().to("out", value=SEEN)
    run = StepRun(builder.build())
    run.pipe([("in", key, word, 1, ()) for key, word in ((b"k", b"a"), (b"l", b"b"), (b"k", b"c"), (b"m", b"d"))])
    sent = [(key, json.loads(value or b"")["words"]) for _topic, key, value, *_rest in run.written]
    assert sent == [(b"l", ["a", "b"]), (b"k", ["a", "b", "c"]), (b"m", ["a", "b", "c", "d"])]
    assert dict(sent) == {key.encode(): row["words"] for key, (row, _time) in run.store("last").all()}
