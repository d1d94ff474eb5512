"""Changes of grouped tables are written as Kafka Streams writes them, and all its forms are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.errors import SerdeError
from tidemill.operators.record import Change

SERDE = ChangeSerde(Serdes.string())


@pytest.mark.parametrize(("change", "expected"), [
    (Change("k1red"), "6b3172656401"),
    (Change(None, "k1red"), "6b3172656400"),
    (Change("b", "a"), "02626102"),
    (Change("x" * 64, "a"), "8001" + "78" * 64 + "6102"),
])
def test_the_bytes_are_kafka_s(change: Change, expected: str) -> None:
    data = SERDE.serialize(change)
    assert data is not None
    assert data.hex() == expected
    assert SERDE.deserialize(data) == change


@pytest.mark.parametrize(("data", "expected"), [
    ("610003", Change(None, "a", False)),
    ("610104", Change("a", None, True)),
    ("0262610005", Change("b", "a", False)),
])
def test_the_forms_that_say_whether_a_change_is_the_latest_are_read(data: str, expected: Change) -> None:
    assert SERDE.deserialize(bytes.fromhex(data)) == expected


@given(st.one_of(st.none(), st.text(max_size=200)), st.one_of(st.none(), st.text(max_size=20)))
def test_every_change_comes_back(new: str | None, old: str | None) -> None:
    if new is None and old is None:
        with pytest.raises(SerdeError, match="neither a new nor an old value"):
            SERDE.serialize(Change(None, None))
    else:
        assert SERDE.deserialize(SERDE.serialize(Change(new, old))) == Change(new, old)


@pytest.mark.parametrize("data", ["", "6106", "09616202", "ffffffffff02"])
def test_other_bytes_are_refused(data: str) -> None:
    with pytest.raises(SerdeError, match="change: "):
        SERDE.deserialize(bytes.fromhex(data))


def test_the_default_serde_fills_the_gap() -> None:
    filled = ChangeSerde().with_inner(Serdes.long())
    assert filled == ChangeSerde(Serdes.long())
    assert filled.with_inner(Serdes.string()) == filled
    assert filled.serialize(Change(1)) == bytes(7) + b"\x01\x01"


def test_a_record_without_a_value_is_no_change() -> None:
    with pytest.raises(SerdeError, match="found no bytes"):
        SERDE.deserialize(None)
