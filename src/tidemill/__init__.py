"""Tidemill: Kafka Streams' programming and availability model for Python, with Apache Spark as the engine.

The public API is what this module and `tidemill.testing` export; nothing else is public. Each name is loaded on first use:
processes that need one module wait for no other. Only ``KafkaStreams`` needs Spark.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tidemill.lazy_names import load_name

if TYPE_CHECKING:
    from tidemill.assignment.model import (
        ApplicationState,
        Assignment,
        AssignmentConfig,
        ClientAssignment,
        ClientState,
        ConsumerState,
        CopyRole,
        Decision,
        RackStrategy,
        TaskAssignor,
        TaskInfo,
    )
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.config.texts import load_toml
    from tidemill.dsl.aggregators import Aggregator, Aggregators
    from tidemill.dsl.batch_functions import per_batch, per_record_async
    from tidemill.dsl.branches import BranchedKStream
    from tidemill.dsl.builder import StreamsBuilder
    from tidemill.dsl.cogroup import CogroupedKStream, WindowedCogroupedKStream
    from tidemill.dsl.function_types import (
        AggregatorFunction,
        ColumnJoiner,
        ColumnJoinerWithKey,
        ForeachAction,
        ForeachBatchFunction,
        ForeignKeyExtractor,
        FrameSource,
        GroupSelector,
        Initializer,
        KeySelector,
        KeyValueMapper,
        Merger,
        Predicate,
        Reducer,
        StreamJoiner,
        TimestampExtractor,
        TopicNameExtractor,
        ValueJoiner,
        ValueJoinerWithKey,
        ValueMapper,
        ValueMapperWithKey,
        ValueTransformerSupplier,
    )
    from tidemill.dsl.functions import of_columns, per_record
    from tidemill.dsl.grouped import KGroupedStream
    from tidemill.dsl.grouped_table import KGroupedTable
    from tidemill.dsl.joined import Joined, StreamJoined, TableJoined
    from tidemill.dsl.materialized import Materialized
    from tidemill.dsl.processor_topology import TopologyBuilder
    from tidemill.dsl.serdes import Serdes
    from tidemill.dsl.serdes_windowed import WindowedSerdes
    from tidemill.dsl.stores import Stores
    from tidemill.dsl.stream import KStream
    from tidemill.dsl.suppressed import Suppressed
    from tidemill.dsl.table import GlobalKTable, KTable
    from tidemill.dsl.windowed import EmitStrategy, SessionWindowedKStream, TimeWindowedKStream
    from tidemill.endpoint import HostInfo
    from tidemill.errors import (
        AssignmentError,
        ColumnMistakeError,
        ConfigError,
        CorruptStateError,
        DrainRefusedError,
        EnvironmentProblem,
        ForeignStateError,
        InstanceIdInUseError,
        InvalidStateStoreError,
        MissingRightError,
        PartitionCountError,
        QueryError,
        RecordError,
        RetriableError,
        SerdeError,
        ShutdownRequestedError,
        StateDirectoryInUseError,
        StateError,
        StopError,
        StoredBytesError,
        StreamsNotStartedError,
        TidemillError,
        TopologyError,
        TopologyMismatchError,
        UnknownStoreError,
    )
    from tidemill.ids import ProcessId, TaskId, TopicPartition
    from tidemill.log_format import JsonLines
    from tidemill.metrics.names import Metric, MetricName, RecordingLevel
    from tidemill.operators.context import RecordMetadata
    from tidemill.operators.exception_handlers import ColumnsFunctionError, DeadLetter, ErrorContext, ExceptionResponse
    from tidemill.operators.processors import (
        Processor,
        ProcessorContext,
        ProcessorSupplier,
        PunctuationType,
        ValueTransformerWithKey,
    )
    from tidemill.operators.record import Record, SourceRecord
    from tidemill.operators.wrapped import ProcessorWrapper
    from tidemill.query.metadata import KeyQueryMetadata, StreamsMetadata
    from tidemill.query.position import Position
    from tidemill.query.store_frame import StoreDataFrame
    from tidemill.query.store_queries import LagInfo
    from tidemill.query.versioned_view import ReadOnlyVersionedStore
    from tidemill.query.view import ReadOnlyStore
    from tidemill.query.windowed_view import ReadOnlySessionStore, ReadOnlyWindowStore
    from tidemill.runtime.instance.application import KafkaStreams
    from tidemill.runtime.instance.instance_state import State, StateListener
    from tidemill.runtime.observe.live_view import LiveView
    from tidemill.runtime.observe.restore_listeners import StandbyUpdateListener, StateRestoreListener
    from tidemill.runtime.thread.uncaught_exception import StreamThreadExceptionResponse, UncaughtExceptionHandler
    from tidemill.schema_registry.registry import SchemaRegistry
    from tidemill.task.batch_id import BatchId, OffsetRange
    from tidemill.task.progress import SuspendReason
    from tidemill.topology.nodes import Store, Topology
    from tidemill.topology.partitioning import StreamPartitioner
    from tidemill.topology.values import Serde, ValueAndTimestamp
    from tidemill.topology.windows import (
        JoinWindows,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UnlimitedWindows,
        Windowed,
        Windows,
    )

# kafka-python reads its schemas, as it is imported, by functions that Python 3.11 and 3.12 call deprecated: an error with -W.
warnings.filterwarnings(
    "ignore", category=DeprecationWarning, module=r"kafka\.protocol\.schemas\.load_json|importlib\.resources\._legacy"
)

__all__ = [
    "Aggregator",
    "AggregatorFunction",
    "Aggregators",
    "ApplicationState",
    "Assignment",
    "AssignmentConfig",
    "AssignmentError",
    "BatchId",
    "BranchedKStream",
    "ClientAssignment",
    "ClientState",
    "CogroupedKStream",
    "ColumnJoiner",
    "ColumnJoinerWithKey",
    "ColumnMistakeError",
    "ColumnsFunctionError",
    "ConfigError",
    "ConsumerState",
    "CopyRole",
    "CorruptStateError",
    "DeadLetter",
    "Decision",
    "DrainRefusedError",
    "EmitStrategy",
    "EnvironmentProblem",
    "ErrorContext",
    "ExceptionResponse",
    "ForeachAction",
    "ForeachBatchFunction",
    "ForeignKeyExtractor",
    "ForeignStateError",
    "FrameSource",
    "GlobalKTable",
    "GroupSelector",
    "HostInfo",
    "Initializer",
    "InstanceIdInUseError",
    "InvalidStateStoreError",
    "JoinWindows",
    "Joined",
    "JsonLines",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "KeyQueryMetadata",
    "KeySelector",
    "KeyValueMapper",
    "LagInfo",
    "LiveView",
    "Materialized",
    "Merger",
    "Metric",
    "MetricName",
    "MissingRightError",
    "OffsetRange",
    "PartitionCountError",
    "Position",
    "Predicate",
    "ProcessId",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "ProcessorWrapper",
    "PunctuationType",
    "QueryError",
    "RackStrategy",
    "ReadOnlySessionStore",
    "ReadOnlyStore",
    "ReadOnlyVersionedStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordError",
    "RecordMetadata",
    "RecordingLevel",
    "Reducer",
    "RetriableError",
    "SchemaRegistry",
    "Serde",
    "SerdeError",
    "Serdes",
    "SessionWindowedKStream",
    "SessionWindows",
    "ShutdownRequestedError",
    "SlidingWindows",
    "SourceRecord",
    "StandbyUpdateListener",
    "State",
    "StateDirectoryInUseError",
    "StateError",
    "StateListener",
    "StateRestoreListener",
    "StopError",
    "Store",
    "StoreDataFrame",
    "StoredBytesError",
    "Stores",
    "StreamJoined",
    "StreamJoiner",
    "StreamPartitioner",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsMetadata",
    "StreamsNotStartedError",
    "Suppressed",
    "SuspendReason",
    "TableJoined",
    "TaskAssignor",
    "TaskId",
    "TaskInfo",
    "TidemillError",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampExtractor",
    "TopicNameExtractor",
    "TopicPartition",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "TopologyMismatchError",
    "UncaughtExceptionHandler",
    "UnknownStoreError",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "ValueJoiner",
    "ValueJoinerWithKey",
    "ValueMapper",
    "ValueMapperWithKey",
    "ValueTransformerSupplier",
    "ValueTransformerWithKey",
    "Windowed",
    "WindowedCogroupedKStream",
    "WindowedSerdes",
    "Windows",
    "load_toml",
    "of_columns",
    "per_batch",
    "per_record",
    "per_record_async",
]

_EXPORTS: dict[str, tuple[str, ...]] = {
    "tidemill.assignment.model": (
        "ApplicationState",
        "Assignment",
        "AssignmentConfig",
        "ClientAssignment",
        "ClientState",
        "ConsumerState",
        "CopyRole",
        "Decision",
        "RackStrategy",
        "TaskAssignor",
        "TaskInfo",
    ),
    "tidemill.config.streams_config": ("StreamsConfig",),
    "tidemill.config.texts": ("load_toml",),
    "tidemill.dsl.aggregators": ("Aggregator", "Aggregators"),
    "tidemill.dsl.batch_functions": ("per_batch", "per_record_async"),
    "tidemill.dsl.branches": ("BranchedKStream",),
    "tidemill.dsl.builder": ("StreamsBuilder",),
    "tidemill.dsl.cogroup": ("CogroupedKStream", "WindowedCogroupedKStream"),
    "tidemill.dsl.function_types": (
        "AggregatorFunction",
        "ColumnJoiner",
        "ColumnJoinerWithKey",
        "ForeachAction",
        "ForeachBatchFunction",
        "ForeignKeyExtractor",
        "FrameSource",
        "GroupSelector",
        "Initializer",
        "KeySelector",
        "KeyValueMapper",
        "Merger",
        "Predicate",
        "Reducer",
        "StreamJoiner",
        "TimestampExtractor",
        "TopicNameExtractor",
        "ValueJoiner",
        "ValueJoinerWithKey",
        "ValueMapper",
        "ValueMapperWithKey",
        "ValueTransformerSupplier",
    ),
    "tidemill.dsl.functions": ("of_columns", "per_record"),
    "tidemill.dsl.grouped": ("KGroupedStream",),
    "tidemill.dsl.grouped_table": ("KGroupedTable",),
    "tidemill.dsl.joined": ("Joined", "StreamJoined", "TableJoined"),
    "tidemill.dsl.materialized": ("Materialized",),
    "tidemill.dsl.processor_topology": ("TopologyBuilder",),
    "tidemill.dsl.serdes": ("Serdes",),
    "tidemill.dsl.serdes_windowed": ("WindowedSerdes",),
    "tidemill.dsl.stores": ("Stores",),
    "tidemill.dsl.stream": ("KStream",),
    "tidemill.dsl.suppressed": ("Suppressed",),
    "tidemill.dsl.table": ("GlobalKTable", "KTable"),
    "tidemill.dsl.windowed": ("EmitStrategy", "SessionWindowedKStream", "TimeWindowedKStream"),
    "tidemill.endpoint": ("HostInfo",),
    "tidemill.errors": (
        "AssignmentError",
        "ColumnMistakeError",
        "ConfigError",
        "CorruptStateError",
        "DrainRefusedError",
        "EnvironmentProblem",
        "ForeignStateError",
        "InstanceIdInUseError",
        "InvalidStateStoreError",
        "MissingRightError",
        "PartitionCountError",
        "QueryError",
        "RecordError",
        "RetriableError",
        "SerdeError",
        "ShutdownRequestedError",
        "StateDirectoryInUseError",
        "StateError",
        "StopError",
        "StoredBytesError",
        "StreamsNotStartedError",
        "TidemillError",
        "TopologyError",
        "TopologyMismatchError",
        "UnknownStoreError",
    ),
    "tidemill.ids": ("ProcessId", "TaskId", "TopicPartition"),
    "tidemill.log_format": ("JsonLines",),
    "tidemill.metrics.names": ("Metric", "MetricName", "RecordingLevel"),
    "tidemill.operators.context": ("RecordMetadata",),
    "tidemill.operators.exception_handlers": ("ColumnsFunctionError", "DeadLetter", "ErrorContext", "ExceptionResponse"),
    "tidemill.operators.processors": (
        "Processor",
        "ProcessorContext",
        "ProcessorSupplier",
        "PunctuationType",
        "ValueTransformerWithKey",
    ),
    "tidemill.operators.record": ("Record", "SourceRecord"),
    "tidemill.operators.wrapped": ("ProcessorWrapper",),
    "tidemill.query.metadata": ("KeyQueryMetadata", "StreamsMetadata"),
    "tidemill.query.position": ("Position",),
    "tidemill.query.store_frame": ("StoreDataFrame",),
    "tidemill.query.store_queries": ("LagInfo",),
    "tidemill.query.versioned_view": ("ReadOnlyVersionedStore",),
    "tidemill.query.view": ("ReadOnlyStore",),
    "tidemill.query.windowed_view": ("ReadOnlySessionStore", "ReadOnlyWindowStore"),
    "tidemill.runtime.instance.application": ("KafkaStreams",),
    "tidemill.runtime.instance.instance_state": ("State", "StateListener"),
    "tidemill.runtime.thread.uncaught_exception": ("StreamThreadExceptionResponse", "UncaughtExceptionHandler"),
    "tidemill.runtime.observe.live_view": ("LiveView",),
    "tidemill.runtime.observe.restore_listeners": ("StandbyUpdateListener", "StateRestoreListener"),
    "tidemill.schema_registry.registry": ("SchemaRegistry",),
    "tidemill.task.batch_id": ("BatchId", "OffsetRange"),
    "tidemill.task.progress": ("SuspendReason",),
    "tidemill.topology.nodes": ("Serde", "Store", "Topology"),
    "tidemill.topology.partitioning": ("StreamPartitioner",),
    "tidemill.topology.values": ("ValueAndTimestamp",),
    "tidemill.topology.windows": (
        "JoinWindows",
        "SessionWindows",
        "SlidingWindows",
        "TimeWindows",
        "UnlimitedWindows",
        "Windowed",
        "Windows",
    ),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    found = globals()[name] = load_name(__name__, name, _MODULES)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
