"""Changelog, repartition and output records are Kafka Streams' byte for byte, and a changelog gives its store back."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.operators import programs_of_formats
from tests.operators.harness import ROW_FORMS, TASK, MemoryRows, Program, Run, all_programs, cases, formats, run_case
from tidemill import Serdes
from tidemill.operators.stores import store_of
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import StoreKind

MODULES = [import_module(f"tests.operators.{path.stem}") for path in sorted(Path(__file__).parent.glob("programs_*formats*.py"))]


def programs_of(module: ModuleType) -> dict[str, Program]:
    return {name: getattr(module, name) for name in formats() if hasattr(module, name)}


PROGRAMS = programs_of(programs_of_formats)
WITHOUT_CHANGELOGS = {"table_source_topic_as_changelog", "repartition_stream"}
RESTORED = {
    name: program for module in MODULES for name, program in programs_of(module).items() if name not in WITHOUT_CHANGELOGS
}

SEMANTICS = {
    name: program
    for name, program in all_programs().items()
    if not name.startswith(("global_", "ss_"))  # global stores have no changelogs, those of stream joins have tests of their own
    and any(kept["kind"] in ("key_value", "timestamped_key_value", "versioned") for kept in cases()[name][0]["stores"].values())
}


def records_of(run: Run, topic: str) -> list[dict[str, Any]]:
    """What a run wrote to a topic as it is named on the broker, in the vectors' form."""
    inner = topic.removeprefix("app-")
    if (store := inner.removesuffix("-changelog")) != inner:
        found = [entry[1:] for entry in run.logged if entry[0] == store]
    else:
        found = [entry[1:] for entry in run.written if entry[0] in (topic, inner)]
    return [
        {
            "key_hex": None if key is None else key.hex(), "value_hex": None if value is None else value.hex(),
            "timestamp": timestamp, "headers": [[name, data.hex()] for name, data in headers], "at": at,
        }
        for key, value, timestamp, headers, at in found
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_topic_has_the_bytes_of_kafka_streams(name: str) -> None:
    case = formats()[name]
    run = run_case(PROGRAMS[name], case)
    assert {topic: records_of(run, topic) for topic in case["topics"]} == case["topics"]


@pytest.mark.parametrize("name", RESTORED)
def test_a_changelog_gives_the_store_back(name: str) -> None:
    run = run_case(RESTORED[name], formats()[name])
    stores = {
        name: store
        for name, store in run.topology.stores.items()
        if store.kind in ROW_FORMS and store.source_topic is None
    }
    assert stores
    for store, described in stores.items():
        restored = store_of(described, MemoryRows(), KeyValueSerdes(key=Serdes.string(), value=Serdes.string()))
        for logged, key, value, timestamp, headers, _at in run.logged:
            if logged == store:
                restored.restore(key, value, timestamp, headers)
        show = ROW_FORMS[described.kind]
        assert list(show(restored)) == list(show(run.graph.store(store))), f"{store} of task {TASK}"


KEY_VALUE_KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED)


@pytest.mark.parametrize("name", SEMANTICS)
def test_key_value_stores_come_back_row_by_row(name: str) -> None:
    run = run_case(SEMANTICS[name], cases()[name][0])
    stores = {n: store for n, store in run.topology.stores.items() if store.kind in KEY_VALUE_KINDS and store.logged}
    assert stores
    for store, described in stores.items():
        rows = MemoryRows()
        restored = store_of(described, rows, KeyValueSerdes(key=Serdes.string(), value=Serdes.string()))
        for logged, key, value, timestamp, headers, _at in run.logged:
            if logged == store:
                restored.restore(key, value, timestamp, headers)
        assert rows.rows == run.rows[store].rows
