"""The topology of a program under an application's settings: optimizations, processor wrapper (``processor.wrapper.class``,
KIP-1112), default kinds of stores (``dsl.store.suppliers.class``, ``dsl.store.format``), no caches
(``statestore.cache.max.bytes=0``), times of sources (``default.timestamp.extractor``), default serdes.

What the program sets itself stays, and so do stores of a fixed kind (versioned ones, buffers).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

from tidemill.config.slices import TopologyConfig
from tidemill.config.values import KafkaExtractor, StoreFormat, StoreSuppliers
from tidemill.dsl.arguments import serde_or_none, timestamp_extractor_or_none
from tidemill.dsl.builder import StreamsBuilder
from tidemill.dsl.processor_topology import TopologyBuilder
from tidemill.dsl.serdes import serde_by_name
from tidemill.errors import ConfigError, TidemillError, TopologyError
from tidemill.log_format import LogEvent
from tidemill.operators.wrapped import ProcessorWrapper, wrapped_topology
from tidemill.printable import said_by
from tidemill.runtime.instance.imported import imported
from tidemill.topology.functions import UserFunction
from tidemill.topology.graph import internal_topics
from tidemill.topology.internal_names import require_explicit_names
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology
from tidemill.topology.operations import ProcessRecords
from tidemill.topology.values import Serde

log = logging.getLogger("tidemill.application")
_WRAPPER = "processor.wrapper.class"
_EXTRACTOR = "default.timestamp.extractor"
Program = Topology | StreamsBuilder | TopologyBuilder
"""What an application or a test driver runs: a topology, or the builder of one."""
_REPARTITIONED_ABOVE = (
    "merge.repartition.topics has moved repartitions above processors: where one forwards other keys than it gets, call"
    " repartition() behind it, or its records are aggregated or joined in the wrong tasks."
)


def configured_topology(program: Program, config: TopologyConfig) -> Topology:
    """``program`` built with ``topology.optimization``, unless it is a topology already, its processors wrapped as
    ``processor.wrapper.class`` says, and with the stores that it leaves open as ``dsl.store.suppliers.class`` and
    ``dsl.store.format`` say; none has a cache if ``statestore.cache.max.bytes`` is 0. Sources without an extractor have that of
    ``default.timestamp.extractor``.

    Raises:
        ConfigError, TopologyError: a default serde is none.
        TopologyError: ``program`` is neither a builder nor a topology; ``ensure.explicit.internal.resource.naming`` is set, and
            an internal resource has a generated name; the name of an internal topic is too long.
    """
    if isinstance(program, StreamsBuilder):
        program = program.build(optimization=list(config.topology_optimization))
    elif isinstance(program, TopologyBuilder):
        program = program.build()
    elif not isinstance(program, Topology):
        raise TopologyError(
            f"the program is {_described(program)}, expected a StreamsBuilder or a TopologyBuilder, or a topology as "
            "build() of one of them gives it"
        )
    for topic in internal_topics(program, config.application_id):
        legal_name(topic, "an internal topic, which begins with application.id")
    below = [name for name in program.processors_below_merged_repartition if not _keeps_keys(program, name)]
    if below:
        log.warning(LogEvent("repartition-above-processors", says=_REPARTITIONED_ABOVE, processors=", ".join(below)))
    default_serdes(config)
    if config.ensure_explicit_internal_resource_naming:
        require_explicit_names(program)
    wrapper = processor_wrapper_of(config)
    if wrapper is not None:
        program = wrapped_topology(program, wrapper)
    return with_store_defaults(
        _with_extractor(program, _default_extractor(config)),
        persistent=config.dsl_store_suppliers_class is StoreSuppliers.PERSISTENT,
        with_headers=config.dsl_store_format is StoreFormat.HEADERS,
        may_cache=config.statestore_cache_max_bytes > 0,
    )


def require_sources(topology: Topology) -> None:
    """TopologyError if the topology reads nothing: its instances would run, and look like those of a program without input."""
    if not any(isinstance(node, SourceNode) for node in topology.nodes.values()):
        raise TopologyError("the topology reads no topic: add a stream or a table, or give the builder that has them")


def _keeps_keys(program: Topology, processor: str) -> bool:
    node = program.nodes[processor]
    if not isinstance(node, ProcessorNode):
        return False
    return not isinstance(node.operation, ProcessRecords) or node.operation.fixed_key


def _described(program: object) -> str:
    return f"the class {program.__name__}, not an object" if isinstance(program, type) else f"a {type(program).__name__}"


def default_serdes(config: TopologyConfig) -> KeyValueSerdes:
    """``default.key.serde`` and ``default.value.serde``.

    Raises:
        ConfigError: no serde has that name.
        TopologyError: it is another object than a serde.
    """
    return KeyValueSerdes(
        key=_serde("default.key.serde", config.default_key_serde), value=_serde("default.value.serde", config.default_value_serde)
    )


def _serde(name: str, setting: Any) -> Serde | None:
    if not isinstance(setting, str):
        return serde_or_none(setting, name)
    try:
        return serde_by_name(setting)
    except TidemillError as problem:
        raise ConfigError(f"{name}: {problem}") from None


def with_store_defaults(topology: Topology, *, persistent: bool, with_headers: bool, may_cache: bool) -> Topology:
    """The topology with these for all stores that leave them open; the same one if nothing changes. Not ``may_cache``: no store
    has a cache."""
    stores = {
        name: replace(
            store,
            persistent=persistent if "persistent" in store.left_open else store.persistent,
            with_headers=with_headers if "with_headers" in store.left_open else store.with_headers,
            caching=store.caching and may_cache,
        )
        for name, store in topology.stores.items()
    }
    return topology if stores == topology.stores else replace(topology, stores=stores)


def _default_extractor(config: TopologyConfig) -> UserFunction | KafkaExtractor | None:
    given = config.default_timestamp_extractor
    if isinstance(given, KafkaExtractor):
        return None if given is KafkaExtractor.FAIL_ON_INVALID else given
    found = imported(_EXTRACTOR, given, "module:function") if isinstance(given, str) else given
    if not callable(found):
        raise ConfigError(f"{_EXTRACTOR}={given} is no function; expected one of (record, partition_time)")
    return timestamp_extractor_or_none(found, _EXTRACTOR)


def _with_extractor(topology: Topology, extractor: UserFunction | KafkaExtractor | None) -> Topology:
    """The topology with this extractor at sources that have none; repartition and global topics have their records' times."""
    if extractor is None:
        return topology
    nodes = dict(topology.nodes)
    for name, node in topology.nodes.items():
        match node:
            case SourceNode(is_global=False, timestamp_extractor=None, topics=topics):
                if topology.repartition_topics.keys().isdisjoint(topics):
                    nodes[name] = replace(node, timestamp_extractor=extractor)
    return replace(topology, nodes=nodes)


def processor_wrapper_of(config: TopologyConfig) -> ProcessorWrapper | None:
    """The application's wrapper, configured; None if it has none.

    Raises:
        ConfigError: it can't be imported or made, or has no ``wrap_processor_supplier``.
    """
    given = config.processor_wrapper_class
    if given is None:
        return None
    found = imported(_WRAPPER, given, "module:Class") if isinstance(given, str) else given
    if isinstance(found, type):
        try:
            found = found()
        except (Exception, SystemExit) as problem:
            raise ConfigError(f"{_WRAPPER}={given} can't be made: {type(problem).__name__}: {said_by(problem)}") from problem
    if not callable(getattr(found, "wrap_processor_supplier", None)):
        raise ConfigError(
            f"{_WRAPPER}={given} has no wrap_processor_supplier; expected a class with"
            " wrap_processor_supplier(self, name, supplier) that gives a supplier"
        )
    configure = getattr(found, "configure", None)
    if configure is not None:
        try:
            configure(config)
        except (Exception, SystemExit) as problem:
            said = f"{type(problem).__name__}: {said_by(problem)}"
            raise ConfigError(f"{_WRAPPER}={given}: its configure has failed: {said}") from problem
    return cast("ProcessorWrapper", found)
