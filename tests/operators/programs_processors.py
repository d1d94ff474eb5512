"""The vectors' programs of the Processor API."""

from __future__ import annotations

from typing import Any

from tests.operators.programs_stateless import text
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.stores import Stores
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Record

STRING, LONG = Serdes.string(), Serdes.long()


class _RunningNumber:
    def init(self, context: ProcessorContext) -> None:
        self.context, self.kv = context, context.store("kv")

    def process(self, record: Record) -> None:
        number = (self.kv.get(record.key) or 0) + 1
        if record.value is None:
            self.kv.delete(record.key)
            return
        self.kv.put(record.key, number)
        self.context.forward(record.with_value(f"{number}:{record.value}"))


def process_values_running_number(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("kv", key=STRING, value=LONG))
    keyed = b.stream("in").filter(per_record(lambda k, v: k is not None))
    keyed.process_values(_RunningNumber, "kv").to("out", value=STRING)


class _CountsAndTells:
    """Counts by key; tells and forgets the counts every 5 s of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.counts = context, context.store("cnt")
        context.schedule(5000, PunctuationType.STREAM_TIME, self.tell)

    def process(self, record: Record) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def tell(self, now: int) -> None:
        for key, counted in self.counts.all():
            self.context.forward(Record(key, f"n={counted}@{now}", now))
            self.counts.delete(key)
        self.context.forward(Record("tick", str(self.context.current_stream_time_ms), now))


def punctuate_stream_time(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("cnt", key=STRING, value=LONG))
    keyed = b.stream("in").filter(per_record(lambda k, v: k is not None))
    keyed.process(_CountsAndTells, "cnt").to("out", key=STRING, value=STRING)


class _Ticks:
    """Tells every second of the wall clock how many records came since the last time."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.seen = context, 0
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, _record: Record) -> None:
        self.seen += 1

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", f"{self.seen}@{now}/{self.context.current_stream_time_ms}", now))
        self.seen = 0


def punctuate_wall_clock(b: StreamsBuilder) -> None:
    b.stream("in").process(_Ticks).to("out", key=STRING, value=STRING)


class _Keeps:
    def init(self, context: ProcessorContext) -> None:
        self.shared = context.store("shared")

    def process(self, record: Record) -> None:
        self.shared.put(record.key, record.value, record.timestamp)


class _LooksUp:
    def init(self, context: ProcessorContext) -> None:
        self.context, self.shared = context, context.store("shared")

    def process(self, record: Record) -> None:
        found: Any = self.shared.get(record.key)
        kept = "null" if found is None else f"{text(found[0])}@{found[1]}"
        at = record.timestamp if found is None else max(record.timestamp, found[1])
        self.context.forward(record.with_value(f"{text(record.value)}<{kept}").with_timestamp(at))


def process_shared_store(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.timestamped_key_value_store("shared", key=STRING, value=STRING, persistent=False))
    b.stream("a").process(_Keeps, "shared")
    b.stream("b").process(_LooksUp, "shared").to("out", key=STRING, value=STRING)
