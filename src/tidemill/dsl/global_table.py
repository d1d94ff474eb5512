"""GlobalKTable: a table that every instance has all of."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.dsl.recorder import Recorder
from tidemill.topology.nodes import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalKTable:
    """A table that every instance has all of, to join streams with by any key (org.apache.kafka.streams.kstream.GlobalKTable).

    ``store_name`` is None where the store can't be queried. It is read from its beginning at every start, before any task runs.
    """

    recorder: Recorder
    store: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    store_name: str | None = None
