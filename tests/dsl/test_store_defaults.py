"""What settings say of stores holds where the program leaves it open, and nowhere else."""

from __future__ import annotations

from tidemill import JoinWindows, Materialized, Serdes, StreamJoined, StreamsBuilder, TimeWindows
from tidemill.config.slices import TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.stores import Stores
from tidemill.runtime.instance.configured_topology import configured_topology

TEXT = Serdes.string()
NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    grouped = stream.group_by_key()
    grouped.count(store="open")
    grouped.count(store=Materialized(name="disk", persistent=True, headers=False))
    grouped.count(store=Materialized(name="memory", persistent=False))
    grouped.windowed_by(TimeWindows.of_size(10)).count(store="windows")
    builder.table("table", key=TEXT, value=TEXT, store=Materialized(name="versioned", history_retention=1_000))
    builder.add_state_store(Stores.key_value_store("mine", key=TEXT, value=TEXT))
    windows = JoinWindows.of_time_difference(10)
    stream.left_join(builder.stream("other", key=TEXT, value=TEXT), lambda a, b: a, windows)
    stream.join(
        builder.stream("another", key=TEXT, value=TEXT), lambda a, b: a, windows,
        joined=StreamJoined(persistent=True, store_name="j"),
    )
    return builder


def kept(**settings: str) -> dict[str, tuple[bool, bool]]:
    config = StreamsConfig.of({**NEEDED, **{name.replace("__", "."): value for name, value in settings.items()}})
    stores = configured_topology(program(), config.slice(TopologyConfig)).stores
    return {name: (store.persistent, store.with_headers) for name, store in stores.items()}


def test_without_settings_stores_are_on_disk_and_without_headers() -> None:
    assert {name for name, how in kept().items() if how != (True, False)} == {"memory"}


def test_in_memory_is_for_the_stores_of_the_dsl_that_leave_it_open() -> None:
    found = kept(dsl__store__suppliers__class="InMemoryDslStoreSuppliers")
    in_memory = {name for name, (persistent, _) in found.items() if not persistent}
    assert {"open", "memory", "windows"} < in_memory
    assert {name for name in found if name.startswith(("KSTREAM-JOINTHIS", "KSTREAM-OUTER"))} & in_memory
    assert in_memory.isdisjoint({"disk", "versioned", "mine", "j-this-join-store", "j-other-join-store"})


def test_headers_are_for_the_stores_of_the_dsl_that_leave_it_open() -> None:
    found = kept(dsl__store__format="HEADERS")
    assert {name for name, (_, headers) in found.items() if headers} == {"open", "memory", "windows"}


def test_without_a_cache_no_store_has_one() -> None:
    def cached(**settings: str) -> set[str]:
        config = StreamsConfig.of({**NEEDED, **{name.replace("__", "."): value for name, value in settings.items()}})
        stores = configured_topology(program(), config.slice(TopologyConfig)).stores
        return {name for name, store in stores.items() if store.caching}

    assert {"open", "windows"} <= cached() == cached(statestore__cache__max__bytes="1")
    assert not cached(statestore__cache__max__bytes="0")
    assert not cached(cache__max__bytes__buffering="0")
