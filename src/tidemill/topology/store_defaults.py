"""What settings say of the stores that a program leaves open: ``dsl.store.suppliers.class`` and ``dsl.store.format``.

Decides nothing where the program has said it, and nothing of stores that operators need as they are (versioned ones, buffers).
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.topology.nodes import Topology


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
