"""A program as an application's settings have it: optimizations, and what they say of stores that the program leaves open
(``dsl.store.suppliers.class``, ``dsl.store.format``).

Decides nothing where the program has said it, and nothing of stores that operators need as they are (versioned ones, buffers).
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.config.streams_config import StreamsConfig
from tidemill.config.values import StoreFormat, StoreSuppliers
from tidemill.dsl.builder import StreamsBuilder
from tidemill.topology.nodes import Topology


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


def with_store_defaults(topology: Topology, *, persistent: bool, with_headers: bool) -> Topology:
    """The topology with these for all stores that leave them open; the same one if nothing changes."""
    stores = {
        name: replace(
            store,
            persistent=persistent if "persistent" in store.left_open else store.persistent,
            with_headers=with_headers if "with_headers" in store.left_open else store.with_headers,
        )
        for name, store in topology.stores.items()
    }
    return topology if stores == topology.stores else replace(topology, stores=stores)
