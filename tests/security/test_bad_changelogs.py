"""A changelog into which somebody else has written: restoring ends with the record's place, or takes what can be a record."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.dsl.serdes_foreign_key import SubscriptionSerde
from tidemill.errors import RetriableError, StopError
from tidemill.ids import TaskId
from tidemill.steps.commit.restored import restored_writes
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import Store, StoreKind

TIME = struct.pack(">q", 5)
LONG = struct.pack(">q", 1)


def _spec(kind: StoreKind | None, value: Any = None) -> StoreSpec:
    value = value or Serdes.long()
    kept = None
    if kind is not None:
        settings: dict[str, Any] = {"key_serde": Serdes.string(), "value_serde": value, "retention_ms": 60_000}
        if kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
            settings["window_size_ms"] = 1_000
        if kind is StoreKind.OUTER_JOIN:
            settings["other_value_serde"] = Serdes.long()
        kept = Store(name="s", kind=kind, **settings)
    return StoreSpec(
        name="s", tag=1, subtopology=0, changelog="app-s-changelog", timestamped=True, persistent=True, logged=True,
        key_serde=Serdes.string(), value_serde=value, kept=kept,
    )  # fmt: skip


def _restore(spec: StoreSpec, key: bytes, value: bytes | None, headers: bytes | None = None) -> dict[bytes, bytes | None]:
    table = pa.table(
        {
            "part": pa.array([0], pa.int32()), "off": pa.array([7], pa.int64()), "ts": pa.array([5], pa.int64()),
            "key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary()),
            "headers": pa.array([headers], pa.binary()),
        }
    )  # fmt: skip
    return restored_writes(table, spec, {})[TaskId(0, 0)][1]


@pytest.mark.parametrize("width", [0, 1, 7, 9, 4096])
def test_a_count_of_another_width_is_refused_with_its_place(width: int) -> None:
    with pytest.raises(StopError) as caught:
        _restore(_spec(None), b"key", bytes(width))
    said = str(caught.value)
    assert "task 0_0: the record at offset 7 of app-s-changelog-0 is none of store s" in said
    assert f"{width} bytes, expected 8" in said


MANY = b"\1\x7f\xff\xff\xff"
BACK = bytes(8) + b"\x7f\xff\xff\xff" + b"\xff\xff\xff\xf8" * 9
"""No topic, partition 0, headers without number whose lengths are -8."""

CONTEXT = TIME * 2 + b"\0\0\0\1t" + bytes(8)
"""Of a buffered record, without headers."""
NULLS = b"\xff" * 12

BAD: list[tuple[str, StoreKind, bytes, bytes | None]] = [
    ("a window's key without its time", StoreKind.TIMESTAMPED_WINDOW, b"k", LONG),
    ("no key of a window", StoreKind.TIMESTAMPED_WINDOW, b"", LONG),
    ("a window's key that is one byte short", StoreKind.WINDOW, TIME + b"\0\0\0", LONG),
    ("a session's key without its ends", StoreKind.SESSION, b"k", LONG),
    ("no key of a session", StoreKind.SESSION, b"", LONG),
    ("a session's key that is one byte short", StoreKind.SESSION, TIME + TIME[1:], LONG),
    ("a buffered record without a value", StoreKind.SUPPRESS_BUFFER, b"k", b""),
    ("a buffered record cut short", StoreKind.SUPPRESS_BUFFER, b"k", TIME + b"\0"),
    ("a buffered record of a huge length", StoreKind.SUPPRESS_BUFFER, b"k", TIME * 2 + b"\x7f\xff\xff\xff" * 4),
    ("a grace buffer's key without its time", StoreKind.GRACE_BUFFER, b"k", LONG),
    ("no key of a grace buffer", StoreKind.GRACE_BUFFER, b"", LONG),
    ("a grace buffer's record cut short", StoreKind.GRACE_BUFFER, b"\0" + TIME + bytes(4), TIME),
    ("an outer join's key without its time", StoreKind.OUTER_JOIN, b"k", LONG),
    ("an outer join's list without its head", StoreKind.OUTER_JOIN, TIME + b"\1k", b"\0"),
    ("an outer join's list whose lengths lead backwards", StoreKind.OUTER_JOIN, TIME + b"\1k", MANY + b"\xff\xff\xff\xfc" * 9),
    ("an outer join's list whose lengths are huge", StoreKind.OUTER_JOIN, TIME + b"\1k", MANY * 9),
    ("a buffered record whose headers lead backwards", StoreKind.SUPPRESS_BUFFER, b"k", TIME * 2 + BACK),
    ("an outer join's list of another form", StoreKind.OUTER_JOIN, TIME + b"\1k", b"\0\0\0\0\1\0\0\0\1\1"),
    ("an outer join's list of no value", StoreKind.OUTER_JOIN, TIME + b"\1k", b"\1\0\0\0\0"),
    ("an outer join's list of fewer values than it has", StoreKind.OUTER_JOIN, TIME + b"\1k", b"\1\0\0\0\1" + b"\0\0\0\1\1" * 2),
    ("an outer join's list of -1 values", StoreKind.OUTER_JOIN, TIME + b"\1k", b"\1\xff\xff\xff\xff"),
    ("a buffered record of -2 headers", StoreKind.SUPPRESS_BUFFER, b"k", CONTEXT[:-4] + b"\xff\xff\xff\xfe" + NULLS + TIME),
    ("a buffered record with bytes behind it", StoreKind.SUPPRESS_BUFFER, b"k", CONTEXT + NULLS + TIME + b"\0"),
    ("a grace buffer's record without its value", StoreKind.GRACE_BUFFER, b"\0" + TIME + bytes(4), CONTEXT),
    ("a grace buffer's record with bytes behind it", StoreKind.GRACE_BUFFER, b"\0" + TIME + bytes(4), CONTEXT + NULLS + bytes(9)),
    ("a buffered record of a negative time", StoreKind.SUPPRESS_BUFFER, b"k", b"\xff" * 8 + CONTEXT[8:] + NULLS + TIME),
    ("a window with a sequence", StoreKind.TIMESTAMPED_WINDOW, b"k" + TIME + b"\0\0\0\1", LONG),
    ("a window with a negative sequence", StoreKind.WINDOW, b"k" + TIME + b"\x80\0\0\0", LONG),
    ("a grace buffer's key with a negative sequence", StoreKind.GRACE_BUFFER, b"\0" + TIME + b"\xff" * 4, CONTEXT + NULLS + TIME),
    ("a session that ends before it begins", StoreKind.SESSION, b"k" + bytes(8) + TIME, LONG),
    ("a window that began before 1970", StoreKind.TIMESTAMPED_WINDOW, b"k" + b"\xff" * 12, TIME + LONG),
    ("a session that ended before 1970", StoreKind.SESSION, b"k" + b"\xff" * 8 + TIME, LONG),
]


def test_a_buffered_record_is_restored_as_it_is() -> None:
    buffered, headers = CONTEXT + NULLS + TIME, struct.pack(">i", 1) + b"v" + struct.pack(">i", 1) + b"\x03"
    assert _restore(_spec(StoreKind.SUPPRESS_BUFFER), b"k", buffered, headers)[b"kk"] == buffered
    key = TIME + bytes(4)
    assert _restore(_spec(StoreKind.GRACE_BUFFER), b"\0" + key, buffered)[key] == buffered[:-8]


@pytest.mark.parametrize(("sequence", "is_refused"), [(b"\0\0\0\1", False), (b"\x80\0\0\0", True)])
def test_windows_with_duplicates_have_a_sequence_that_is_not_negative(sequence: bytes, is_refused: bool) -> None:
    """A negative one, counted on, would fit into no number at the next record."""
    spec = _spec(StoreKind.WINDOW)
    assert spec.kept is not None
    spec = replace(spec, kept=replace(spec.kept, retain_duplicates=True))
    with pytest.raises(StopError, match="negative") if is_refused else contextlib.nullcontext():
        assert _restore(spec, b"k" + TIME + sequence, LONG)


@pytest.mark.parametrize(("what", "kind", "key", "value"), BAD, ids=[what for what, *_ in BAD])
def test_what_no_store_has_written_is_refused_with_its_place(what: str, kind: StoreKind, key: bytes, value: bytes | None) -> None:
    headers = struct.pack(">i", 1) + b"v" + struct.pack(">i", 1) + b"\x03" if kind is StoreKind.SUPPRESS_BUFFER else None
    with pytest.raises(StopError, match=r"the record at offset 7 of app-s-changelog-0 is none of store s"):
        _restore(_spec(kind), key, value, headers)


OF_NUMBERS = [
    (StoreKind.KEY_VALUE, b""), (StoreKind.TIMESTAMPED_KEY_VALUE, b""), (StoreKind.VERSIONED, b""),
    (StoreKind.WINDOW, TIME + bytes(4)), (StoreKind.TIMESTAMPED_WINDOW, TIME + bytes(4)), (StoreKind.SESSION, TIME * 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "behind"), OF_NUMBERS, ids=[kind.name for kind, _ in OF_NUMBERS])
@pytest.mark.parametrize(("key", "value", "problem"), [
    (bytes(3), LONG, "its key has 3 bytes, expected 4"), (bytes(4), bytes(7), "its value has 7 bytes, expected 8"),
    (bytes(4), b"", "its value has 0 bytes, expected 8"),
])  # fmt: skip
def test_numbers_of_another_width_are_refused_with_their_place_by_stores_of_every_kind(
    kind: StoreKind, behind: bytes, key: bytes, value: bytes, problem: str
) -> None:
    spec = replace(_spec(kind), key_serde=Serdes.integer())
    with pytest.raises(StopError, match=f"the record at offset 7 of app-s-changelog-0 is none of store s .{problem}"):
        _restore(spec, key + behind, value)
    assert _restore(spec, bytes(4) + behind, LONG)


@pytest.mark.parametrize("kind", [None, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED])
def test_what_was_passed_over_in_a_source_topic_is_not_restored_from_it(
    kind: StoreKind | None, caplog: pytest.LogCaptureFixture
) -> None:
    spec = replace(_spec(kind), changelog=None, source_topic="rows", logged=False)
    row = _restore(spec, b"k", LONG)
    assert any(key.endswith(b"k") for key in row)
    assert caplog.messages == []
    assert not any(key.endswith(b"k") for key in _restore(spec, b"k", bytes(7)))
    (said,) = caplog.messages
    assert "task=0_0 store=s changelog=rows-0 records=1 first_offset=7" in said


class _Words:
    """A serde of a program: its errors are Python's own."""

    name, sql_type, is_away = "words", "string", False

    def serialize(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    def deserialize(self, data: bytes | None) -> str | None:
        if self.is_away:
            raise RetriableError("the registry is away")
        return None if data is None else {b"yes": "yes"}[data]


@pytest.mark.parametrize("kind", [None, StoreKind.TIMESTAMPED_KEY_VALUE])
def test_whatever_a_serde_raises_the_record_was_passed_over_and_is_not_restored(kind: StoreKind | None) -> None:
    serde = _Words()
    spec = replace(_spec(kind, serde), changelog=None, source_topic="rows", logged=False)
    assert _restore(spec, b"k", b"yes")
    assert not _restore(spec, b"k", b"no")
    serde.is_away = True
    with pytest.raises(RetriableError):  # says nothing about the record
        _restore(spec, b"k", b"yes")


KINDS = [None, *(kind for kind in StoreKind)]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name if kind else "plain" for kind in KINDS])
@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=60))
def test_random_records_are_restored_or_refused(kind: StoreKind | None, key: bytes, value: bytes | None) -> None:
    serde = SubscriptionSerde(Serdes.long()) if kind is StoreKind.SUBSCRIPTIONS else None
    with contextlib.suppress(StopError):
        _restore(_spec(kind, serde), key, value)
