"""A program as an application's settings have it: the topology with what they decide."""

from __future__ import annotations

from tidemill.config.streams_config import StreamsConfig
from tidemill.config.values import StoreFormat, StoreSuppliers
from tidemill.dsl.builder import StreamsBuilder
from tidemill.topology.nodes import Topology
from tidemill.topology.store_defaults import with_store_defaults


def configured_topology(program: Topology | StreamsBuilder, config: StreamsConfig) -> Topology:
    """``program`` built with ``topology.optimization``, unless it is a topology already, and with the stores that it leaves
    open as ``dsl.store.suppliers.class`` and ``dsl.store.format`` say."""
    if isinstance(program, StreamsBuilder):
        program = program.build(optimization=list(config.topology_optimization))
    return with_store_defaults(
        program,
        persistent=config.dsl_store_suppliers_class is StoreSuppliers.PERSISTENT,
        with_headers=config.dsl_store_format is StoreFormat.HEADERS,
    )
