"""Tidemill: Kafka Streams' programming and availability model for Python, with Apache Spark as the engine.

``KafkaStreams`` needs Spark and is loaded on first use; everything else of the public interface does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill.dsl.aggregators import Aggregators
from tidemill.dsl.builder import StreamsBuilder
from tidemill.dsl.functions import of_columns, per_record
from tidemill.dsl.joined import Joined, StreamJoined, TableJoined
from tidemill.dsl.materialized import Materialized
from tidemill.dsl.processor_topology import TopologyBuilder
from tidemill.dsl.serdes import Serdes
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.dsl.stores import Stores
from tidemill.dsl.suppressed import Suppressed
from tidemill.dsl.windowed import EmitStrategy
from tidemill.operators.exception_handlers import ColumnsFunctionError, ErrorContext, ExceptionResponse
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Record
from tidemill.runtime.instance_state import State
from tidemill.runtime.uncaught import StreamThreadExceptionResponse
from tidemill.task.batch_id import BatchId
from tidemill.topology.nodes import Topology
from tidemill.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windowed

if TYPE_CHECKING:
    from tidemill.runtime.application import KafkaStreams

__all__ = [
    "Aggregators",
    "BatchId",
    "ColumnsFunctionError",
    "EmitStrategy",
    "ErrorContext",
    "ExceptionResponse",
    "JoinWindows",
    "Joined",
    "KafkaStreams",
    "Materialized",
    "ProcessorContext",
    "PunctuationType",
    "Record",
    "Serdes",
    "SessionWindows",
    "SlidingWindows",
    "State",
    "Stores",
    "StreamJoined",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "Suppressed",
    "TableJoined",
    "TimeWindows",
    "Topology",
    "TopologyBuilder",
    "UnlimitedWindows",
    "Windowed",
    "WindowedSerdes",
    "of_columns",
    "per_record",
]


def __getattr__(name: str) -> Any:
    if name == "KafkaStreams":
        from tidemill.runtime.application import KafkaStreams

        return KafkaStreams
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
