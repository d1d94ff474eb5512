"""What a store holds and nobody can read stops the thread with the task and the store: it would fail in the next batch, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.step_harness import StepRun
from tidemill import (
    JoinWindows,
    PunctuationType,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    per_record,
)

TEXT, LONG = Serdes.string(), Serdes.long()
MINUTE = 60_000


class Adds:
    def init(self, context: Any) -> None:
        self._context, self._store = context, context.store("store")

    def process(self, record: Any) -> None:
        self._store.put(record.key, (self._store.get(record.key) or 0) + record.value)
        self._context.forward(record)


class ReadsAtFirst(Adds):
    def init(self, context: Any) -> None:
        super().init(context)
        self._known = list(self._store.all())


class ReadsByTheClock(Adds):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1, PunctuationType.STREAM_TIME, lambda _now: list(self._store.all()))


def shown(stream: Any) -> None:
    stream.map(per_record(lambda key, value: (str(key), str(value)), (TEXT, TEXT))).to("out")


def records(b: StreamsBuilder, topic: str = "in") -> Any:
    return b.stream(topic, key=TEXT, value=LONG)


def processed(processor: type[Adds]) -> Callable[[StreamsBuilder], None]:
    def build(b: StreamsBuilder) -> None:
        b.add_state_store(Stores.key_value_store("store", key=TEXT, value=LONG))
        shown(records(b).process(processor, "store"))

    return build


def joined(b: StreamsBuilder) -> None:
    records(b).join(records(b, "other"), lambda x, y: x + y, JoinWindows.of_time_difference(MINUTE)).to("out", value=LONG)


def reduced(grouped: Any) -> None:
    shown(grouped.reduce(lambda x, y: x + y, store="store").to_stream())


PROGRAMS: dict[str, Callable[[StreamsBuilder], None]] = {
    "a count": lambda b: shown(records(b).group_by_key().count(store="store").to_stream()),
    "an aggregate": lambda b: reduced(records(b).group_by_key()),
    "a window": lambda b: reduced(records(b).group_by_key().windowed_by(TimeWindows.of_size(MINUTE))),
    "a session": lambda b: reduced(records(b).group_by_key().windowed_by(SessionWindows.of_inactivity_gap(MINUTE))),
    "a join's side, read when it begins": joined,
    "a processor's store": processed(Adds),
    "a processor's store, read when it begins": processed(ReadsAtFirst),
    "a processor's store, read in a punctuator": processed(ReadsByTheClock),
}


def spoilt(run: StepRun) -> None:
    """The values of all rows, whatever stands before them; clocks and indexes stay."""
    for stores in run.stores.values():
        for rows in stores.rows.values():
            rows.update({key: row[:-8] + b"?" for key, row in rows.items() if key[0] < 0xFE})


@pytest.mark.parametrize("what", PROGRAMS)
def test_bytes_that_no_serde_reads_stop_with_the_task_and_the_store(what: str) -> None:
    builder = StreamsBuilder()
    PROGRAMS[what](builder)
    run = StepRun(builder.build())
    one = (7).to_bytes(8, "big")
    run.pipe([("in", b"k", one, 100, ())])
    spoilt(run)
    run.follows = 0  # a worker that knows nothing of before
    run.wall_clock += 10
    topic = "other" if "join" in what else "in"
    with pytest.raises(AssertionError, match=r"stopped: task 0_0.*: store \S+ holds bytes that its serde can't read") as stopped:
        run.pipe([(topic, b"k" if "punctuator" not in what else b"another", one, 200, ())])
    assert "go back to the one that wrote them" in str(stopped.value)
    assert "tidemill reset APP.py --execute --local-state" in str(stopped.value)
