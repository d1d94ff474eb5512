"""Programs of the store formats: key-value stores, tables, versioned tables, repartition topics."""

from __future__ import annotations

from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.materialized import Materialized
from tidemill.dsl.stores import Stores
from tidemill.operators.processors import ProcessorContext
from tidemill.operators.record import Record
from tidemill.topology.windows import SessionWindows

STRING, LONG = Serdes.string(), Serdes.long()


class _KeepsTimes:
    def init(self, context: ProcessorContext) -> None:
        self.kv = context.store("kv")

    def process(self, record: Record) -> None:
        if record.value is None:
            self.kv.delete(record.key)
        else:
            self.kv.put(record.key, record.timestamp + 1)


def plain_key_value(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("kv", key=STRING, value=LONG))
    b.stream("in").process(_KeepsTimes, "kv").to("out")


def timestamped_key_value_count(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().count(store="c").to_stream().to("out", value=LONG)


def timestamped_key_value_table(b: StreamsBuilder) -> None:
    b.table("in", store="t").to_stream().to("out")


def table_source_topic_as_changelog(b: StreamsBuilder) -> None:
    b.table("in", store="t").to_stream().to("out")


def versioned_key_value(b: StreamsBuilder) -> None:
    b.table("in", store=Materialized(name="v", history_retention=60_000)).to_stream().to("out")


def repartition_stream(b: StreamsBuilder) -> None:
    rekeyed = b.stream("in").select_key(per_record(lambda k, v: "nil" if v is None else v, STRING))
    rekeyed.repartition(name="rp").to("out")


def repartition_table_group_by(b: StreamsBuilder) -> None:
    grouped = b.table("in", store="t").group_by(per_record(lambda k, v: (v, k + v)), name="g")
    grouped.reduce(lambda a, b: f"{a}+{b}", lambda a, b: f"{a}-{b}", store="r").to_stream().to("out")


def repartition_versioned_table_group_by(b: StreamsBuilder) -> None:
    table = b.table("in", store=Materialized(name="v", history_retention=60_000))
    counts = table.group_by(per_record(lambda k, v: ("g", v)), name="g").count(store="c")
    counts.to_stream().to("out", value=LONG)


def repartition_then_session(b: StreamsBuilder) -> None:
    from tidemill.dsl.serdes_windowed import WindowedSerdes

    windowed = b.stream("in").group_by(per_record(lambda k, v: v, STRING), name="g").windowed_by(SessionWindows(gap=4000))
    reduced = windowed.reduce(lambda a, b: a + b, store="s")
    reduced.to_stream().to("out", key=WindowedSerdes.session_windowed_serde_from(STRING), value=STRING)


def headers_format_reduce(b: StreamsBuilder) -> None:
    kept = Materialized(name="r", headers=True)
    b.stream("in").group_by_key().reduce(lambda a, b: a + b, store=kept).to_stream().to("out")


def headers_format_table(b: StreamsBuilder) -> None:
    b.table("in", store=Materialized(name="t", headers=True)).to_stream().to("out")
