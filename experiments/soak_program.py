"""An application that keeps much in memory and in stores between two records; `make soak PROGRAM=windows` runs it.

A record of EVENTS goes through suppress, final results of sliding windows and of sessions, an outer join, a join with a versioned
table that waits for late rows, processors with stores of three kinds, and a reduce with a function of Columns. Timestamps are at
most JITTER_MS late, less than any grace period, so nothing is dropped, and the order of a partition's records alone determines
each topic of EXACT.
"""

from collections.abc import Iterator

from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    of_columns,
    per_record,
)

EVENTS, RUNNING, RECENT = "soak-events", "soak-running", "soak-recent"
FOREIGN, ADDED = "soak-foreign", "soak-added"
SUMMED = ("soak-windows", "soak-sliding", "soak-sessions")
EXACT = (RUNNING, RECENT, *SUMMED, "soak-pairs", "soak-rated")
KEYS = 30
JITTER_MS = 2_000
SECOND_MS = 1_000
GRACE_MS = 5_000
TEXT, LONG = Serdes.string(), Serdes.long()

config = {"application.id": "soak", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()
builder.add_state_store(Stores.key_value_store("numbers", key=TEXT, value=LONG))
builder.add_state_store(Stores.key_value_store("sums", key=TEXT, value=LONG, persistent=False))
builder.add_state_store(Stores.window_store("recent", 60 * SECOND_MS, SECOND_MS, key=TEXT, value=TEXT))


def foreign_key(value: str) -> str:
    """The key of the row that a row of the table of even numbers refers to."""
    return f"k{int(value) * 7 % KEYS}"


class Running:
    """Each record with its number and the sum of its key so far; a punctuator writes, too."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.numbers, self.sums = context.store("numbers"), context.store("sums")
        context.schedule(3 * SECOND_MS, PunctuationType.STREAM_TIME, self.mark)

    def process(self, record: Record) -> None:
        number = (self.numbers.get(record.key) or 0) + 1
        total = (self.sums.get(record.key) or 0) + int(record.value)
        self.numbers.put(record.key, number)
        self.sums.put(record.key, total)
        self.context.forward(record.with_value(f"{record.value}: {number} {total}"))

    def mark(self, now_ms: int) -> None:
        self.numbers.put("punctuated", now_ms)


class Recent:
    """Each record with those of its key in the ten seconds before it."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.recent = context, context.store("recent")

    def process(self, record: Record) -> None:
        seen = " ".join(value for _, value in self._before(record))
        self.recent.put(record.key, record.value, record.timestamp)
        self.context.forward(record.with_value(f"{record.value}: {seen}"))

    def _before(self, record: Record) -> Iterator[tuple[int, str]]:
        begin_ms = record.timestamp - 10 * SECOND_MS
        found: Iterator[tuple[int, str]] = self.recent.fetch_range(record.key, begin_ms, record.timestamp)
        return found


def is_even(_key: str, value: str) -> bool:
    return int(value) % 2 == 0


def is_rate(_key: str, value: str) -> bool:
    return int(value) % 7 == 0


by_window = per_record(lambda windowed, _value: f"{windowed.key} {windowed.start} {windowed.end}", TEXT)

events = builder.stream(EVENTS, key=TEXT, value=TEXT)
events.process(Running, "numbers", "sums").to(RUNNING, key=TEXT, value=TEXT)
events.process(Recent, "recent").to(RECENT, key=TEXT, value=TEXT)
numbers = events.map_values(lambda value: value.cast("bigint")).group_by_key(key=TEXT, value=LONG)
numbers.reduce(of_columns(lambda total, number: total + number), store="added").to_stream().to(ADDED, key=TEXT, value=LONG)
even, odd = events.filter(per_record(is_even)), events.filter_not(per_record(is_even))
pairs = even.outer_join(
    odd, per_record(lambda left, right: f"{left} {right}", TEXT), JoinWindows.of_time_difference(SECOND_MS, grace=GRACE_MS)
)
pairs.to("soak-pairs", key=TEXT, value=TEXT)
rows, others = even.to_table(store="even"), odd.to_table(store="odd")
joined = rows.join(others, per_record(lambda left, right: f"{left} {right}", TEXT), foreign_key=foreign_key, store="foreign")
joined.to_stream().to(FOREIGN, key=TEXT, value=TEXT)

again = events.repartition(name="again", key=TEXT, value=TEXT)
rates = again.filter(per_record(is_rate)).to_table(
    store=Materialized(name="rates", history_retention=600 * SECOND_MS, key=TEXT, value=TEXT)
)
again.left_join(rates, per_record(lambda value, rate: f"{value} {rate}", TEXT), joined=Joined(grace=GRACE_MS)).to(
    "soak-rated", key=TEXT, value=TEXT
)
grouped = again.group_by_key()
windows = grouped.windowed_by(TimeWindows.of_size(10 * SECOND_MS, grace=GRACE_MS)).count(store="windows")
windows.suppress(Suppressed.until_window_closes()).to_stream(by_window).to("soak-windows", key=TEXT, value=LONG)
sliding = grouped.windowed_by(SlidingWindows.of_time_difference(4 * SECOND_MS, grace=GRACE_MS))
closed = sliding.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="sliding")
closed.to_stream(by_window).to("soak-sliding", key=TEXT, value=LONG)
sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(3 * SECOND_MS, grace=GRACE_MS))
ended = sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).aggregate(
    lambda: 0,
    lambda _key, value, total: total + int(value),
    lambda _key, first, second: first + second,
    store="sessions",
    value=LONG,
)
ended.to_stream(by_window).to("soak-sessions", key=TEXT, value=LONG)
