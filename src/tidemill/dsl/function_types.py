"""The types of the functions that operators take, under the names of Kafka Streams' interfaces, for editors and type checkers.

Decides nothing: what an operator accepts is checked by ``arguments``. The first six get PySpark Columns, and take a function in
``per_record`` too; the others get Python values, of the types that the serdes have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, Union

from tidemill.operators.processors import ValueTransformerWithKey
from tidemill.operators.record import SourceRecord
from tidemill.task.batch_id import BatchId
from tidemill.topology.functions import OfColumns
from tidemill.topology.values import Key, Value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Result = TypeVar("Result")

# --- of Columns -------------------------------------------------------------------------------------------------------

Predicate = Callable[["Column", "Column"], "Column | bool"]
"""``predicate(key, value)``, a boolean Column: null counts as false."""

KeyValueMapper = Callable[["Column", "Column"], Result]
"""``function(key, value)``: a Column, or where the operator says so a pair of them."""

ValueMapper = Callable[["Column"], object]
"""``function(value)``: a Column or a constant."""

ValueMapperWithKey = Callable[["Column", "Column"], object]
"""``function(key, value)``: a Column or a constant."""

ColumnJoiner = Callable[["Column", "Column"], object]
"""``joiner(left, right)``: a Column or a constant. A side that is missing is null."""

ColumnJoinerWithKey = Callable[["Column", "Column", "Column"], object]
"""``joiner(key, left, right)``: a Column or a constant. A side that is missing is null."""

# --- of Python values -------------------------------------------------------------------------------------------------

ForeachAction = Callable[[Key, Value], object]
"""``function(key, value)``, called for what it does."""

Initializer = Callable[[], object]
"""``initializer()``: the aggregate of a key before its first value."""

Reducer = Callable[[Value, Value], object]
"""``reducer(aggregate, value)``: the next aggregate, of the type of the values."""

AggregatorFunction = Callable[[Key, Value, Value], object]
"""``aggregator(key, value, aggregate)``: the next aggregate (org.apache.kafka.streams.kstream.Aggregator)."""

Merger = Callable[[Key, Value, Value], object]
"""``merger(key, first, second)``: the aggregate of two sessions that became one."""

ValueJoiner = Callable[[Value, Value], object]
"""``joiner(left, right)``: the joined value. A side that is missing is None."""

ValueJoinerWithKey = Callable[[Key, Value, Value], object]
"""``joiner(key, left, right)``: the joined value. A side that is missing is None."""

StreamJoiner = ValueJoiner | ValueJoinerWithKey | OfColumns
"""A joiner of Python values, or one of Columns in ``of_columns``."""

KeySelector = Callable[[Key, Value], Key]
"""``selector(key, value)``: the key of the global table's row that a record is joined with."""

ForeignKeyExtractor = Callable[[Value], Key] | Callable[[Key, Value], Key]
"""``foreign_key(value)`` or ``foreign_key(key, value)``: the other table's key; None where a row has none (KIP-213)."""

GroupSelector = Callable[[Key, Value], "tuple[Key, Value] | None"]
"""``function(key, value) -> (key, value)``: a table's row under the key of its group; None leaves it out."""

ValueTransformerSupplier = Callable[[], ValueTransformerWithKey]
"""``supplier()``, or a class: a transformer of its own for each task."""

TimestampExtractor = Callable[[SourceRecord, int], int]
"""``extractor(record, partition_time)``: the record's time in ms since the epoch; below 0 drops the record. ``record.topic``,
``partition`` and ``offset`` say where it is from.

``partition_time``: the highest time of the partition so far, -1 before the first.
"""

TopicNameExtractor = Callable[[Key, Value, SourceRecord], str]
"""``topic(key, value, record)``: the name of the topic that the record goes to. ``record`` has timestamp and headers, and
``topic``, ``partition`` and ``offset`` of the record that was read (RecordContext)."""

# --- of DataFrames ----------------------------------------------------------------------------------------------------

ForeachBatchFunction = Callable[["DataFrame", BatchId], object]
"""``function(dataframe, batch_id)``, of ``foreach_batch``: called in the driver with the records of a micro-batch."""

FrameSource = Union["DataFrame", Callable[["SparkSession"], "DataFrame"]]
"""The static side of ``join_dataframe``: a DataFrame, or ``frame(session)``, which makes it at each refresh."""
