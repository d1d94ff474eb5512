"""The exception handlers of an application: from its settings to its workers.

Decides that a handler which continues puts the record aside where there is a dead-letter topic, as Kafka Streams' own handlers
do, and how ``module:function`` becomes a handler of the user's. What a handler does is ``operators.exception_handlers``' matter.
"""

from __future__ import annotations

from typing import Any

from tidemill.config.slices import ExceptionConfig
from tidemill.config.values import NamedHandler
from tidemill.dsl.arguments import function_of
from tidemill.errors import ConfigError, TopologyError
from tidemill.operators.exception_handlers import ExceptionHandler, ExceptionHandlers, ExceptionResponse
from tidemill.runtime.instance.imported import imported
from tidemill.spark.plan.compiled_topology import CompiledTopology
from tidemill.spark.plan.sendable import problem_of_sending
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.topology.nodes import SourceNode
from tidemill.topology.values import Serde


def require_handlers(config: ExceptionConfig) -> None:
    """ConfigError if a handler can't be imported, takes other arguments, or can't be sent to the workers."""
    exception_handlers_of(config)
    deserialization_handler_of(config)


def exception_handlers_of(config: ExceptionConfig) -> ExceptionHandlers:
    """ConfigError as above."""
    return ExceptionHandlers(
        processing=_handler("processing.exception.handler", config.processing_exception_handler, config.dead_letter_topic),
        production=_handler("production.exception.handler", config.production_exception_handler, config.dead_letter_topic),
        dead_letter_topic=config.dead_letter_topic,
        cover_global_stores=config.processing_exception_handler_global_enabled,
    )


def takes_one_by_one(config: ExceptionConfig) -> bool:
    """True if single records may have to be left out: what the topology has to be compiled with then (``one_by_one``)."""
    return not exception_handlers_of(config).are_failing


def deserialization_handler_of(config: ExceptionConfig) -> ExceptionResponse | ExceptionHandler:
    """ConfigError as above."""
    return _handler("deserialization.exception.handler", config.deserialization_exception_handler, config.dead_letter_topic)


def unreadable_of(config: ExceptionConfig, compiled: CompiledTopology) -> Unreadable:
    """Handling of records that can't be read, or that can't be processed. ConfigError as above."""
    return Unreadable(
        handler=deserialization_handler_of(config),
        topic=config.dead_letter_topic,
        expected=expected_bytes(compiled),
        handlers=exception_handlers_of(config),
        serdes=_source_serdes(compiled),
    )


def expected_bytes(compiled: CompiledTopology) -> dict[int, str]:
    """Bytes that the serdes of each source node expect, for messages about what they can't read."""
    return {
        source: f"a key of {key.name} and a value of {value.name}" for source, (key, value) in _source_serdes(compiled).items()
    }


def _source_serdes(compiled: CompiledTopology) -> dict[int, tuple[Serde, Serde]]:
    return {
        compiled.compiler.tags.index(name): edge.settled
        for name, edge in compiled.compiler.serdes.leaving.items()
        if isinstance(compiled.topology.nodes.get(name), SourceNode)
    }


def _handler(name: str, setting: Any, topic: str | None) -> ExceptionResponse | ExceptionHandler:
    if isinstance(setting, NamedHandler):
        response = ExceptionResponse(setting.value)
        return ExceptionResponse.DEAD_LETTER if response is ExceptionResponse.CONTINUE and topic else response
    handler = imported(name, setting, "module:function") if isinstance(setting, str) else setting
    if not callable(handler) or isinstance(handler, type):
        raise ConfigError(f"{name}={setting} is {handler!r}, expected a function of (context, record, error)")
    try:
        function_of(handler, ("context", "record", "error"), name)
    except TopologyError as misfit:
        raise ConfigError(str(misfit)) from None
    if not isinstance(setting, str) and (problem := problem_of_sending(handler)):
        raise ConfigError(f"{name}: the handler {problem}")
    return handler
