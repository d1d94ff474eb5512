"""Tidemill: Kafka Streams' programming and availability model for Python, with Apache Spark as the engine.

Each name is loaded on first use: processes that need one module wait for no other. Only ``KafkaStreams`` needs Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from tidemill.runtime.instance.application import KafkaStreams
    from tidemill.runtime.instance.instance_state import State
    from tidemill.runtime.instance.uncaught_exception import StreamThreadExceptionResponse
    from tidemill.task.batch_id import BatchId
    from tidemill.topology.nodes import Topology
    from tidemill.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windowed

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

_MODULES = {
    "Aggregators": "tidemill.dsl.aggregators",
    "BatchId": "tidemill.task.batch_id",
    "ColumnsFunctionError": "tidemill.operators.exception_handlers",
    "EmitStrategy": "tidemill.dsl.windowed",
    "ErrorContext": "tidemill.operators.exception_handlers",
    "ExceptionResponse": "tidemill.operators.exception_handlers",
    "JoinWindows": "tidemill.topology.windows",
    "Joined": "tidemill.dsl.joined",
    "KafkaStreams": "tidemill.runtime.instance.application",
    "Materialized": "tidemill.dsl.materialized",
    "ProcessorContext": "tidemill.operators.processors",
    "PunctuationType": "tidemill.operators.processors",
    "Record": "tidemill.operators.record",
    "Serdes": "tidemill.dsl.serdes",
    "SessionWindows": "tidemill.topology.windows",
    "SlidingWindows": "tidemill.topology.windows",
    "State": "tidemill.runtime.instance.instance_state",
    "Stores": "tidemill.dsl.stores",
    "StreamJoined": "tidemill.dsl.joined",
    "StreamThreadExceptionResponse": "tidemill.runtime.instance.uncaught_exception",
    "StreamsBuilder": "tidemill.dsl.builder",
    "Suppressed": "tidemill.dsl.suppressed",
    "TableJoined": "tidemill.dsl.joined",
    "TimeWindows": "tidemill.topology.windows",
    "Topology": "tidemill.topology.nodes",
    "TopologyBuilder": "tidemill.dsl.processor_topology",
    "UnlimitedWindows": "tidemill.topology.windows",
    "Windowed": "tidemill.topology.windows",
    "WindowedSerdes": "tidemill.dsl.serdes_windowed",
    "of_columns": "tidemill.dsl.functions",
    "per_record": "tidemill.dsl.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
