"""Programs of chance run on records of chance: none stops for a reason of ours, and key-value stores come back."""

from __future__ import annotations

import pytest

from tests.operators.harness import MemoryRows, start
from tests.operators.random_programs import ANYTHING, built, cases, is_of_another_type, records_for
from tests.operators.test_store_formats import KEY_VALUE_KINDS
from tidemill.errors import RecordError
from tidemill.operators.stores import store_of
from tidemill.topology.key_value_serdes import KeyValueSerdes

CASES = cases(every=5)


def stores_that_come_back(number: int, monkeypatch: pytest.MonkeyPatch) -> list[str] | None:
    """The stores that were restored and compared; None where a record of another type has ended the run."""
    run = start(built(CASES[number], monkeypatch))
    for at, record in enumerate(records_for(run.topology, number, 40)):
        try:
            run.pipe(at, *record)
        except RecordError as error:
            if is_of_another_type(error):
                return None
            raise
    compared = []
    for name, described in run.topology.stores.items():
        if described.kind in KEY_VALUE_KINDS and described.logged and described.source_topic is None:
            rows = MemoryRows()
            restored = store_of(described, rows, KeyValueSerdes(key=ANYTHING, value=ANYTHING))
            for store, key, value, timestamp, headers, _at in run.logged:
                if store == name:
                    restored.restore(key, value, timestamp, headers)
            assert rows.rows == (run.rows[name].rows if name in run.rows else {}), f"{name} of program {number}"
            compared.append(name)
    return compared


def test_programs_of_chance_run_and_their_key_value_stores_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = [stores_that_come_back(number, monkeypatch) for number in range(len(CASES))]
    assert compared.count(None) <= len(CASES) / 10, "most run to their end"
    assert sum(map(bool, compared)) > len(CASES) / 3, "many have such stores"
