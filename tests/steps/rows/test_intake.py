"""What the JVM and operators are given of drawn bytes is what the serde makes of them; no JVM needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.operators.step_harness import StepRun
from tests.steps.drawn_bytes import BYTES_FOR, SERDES
from tidemill import Serdes, StreamsBuilder, Windowed, WindowedSerdes, per_record
from tidemill.errors import ConfigError, RetriableError, SerdeError
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.rows.codecs_wire import fixed_width, for_the_jvm, from_the_jvm, transit_of
from tidemill.steps.rows.intake import DeserializerEndedError, Intake, intake_of

BYTES = Serdes.bytes()


def read_by(serde: Any, data: bytes | None) -> Any:
    """The value's bytes, or "refused"."""
    try:
        return serde.serialize(serde.deserialize(data))
    except SerdeError:
        return "refused"


@pytest.mark.parametrize("name", [name for name in SERDES if name != "bytes"])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_the_jvm_is_given_what_the_serde_reads_and_nothing_that_it_refuses(name: str, data: st.DataObject) -> None:
    serde = SERDES[name]
    given_bytes = data.draw(st.lists(st.none() | BYTES_FOR[name], max_size=5))
    taken, unreadable = Intake(serde).take(given_bytes)
    fixed = fixed_width(serde.sql_type)
    for at, one in enumerate(given_bytes):
        expected = read_by(serde, one)
        assert (at in unreadable) == (expected == "refused")
        if at in unreadable:
            assert taken[at] is None
        elif fixed is not None:
            assert (None if taken[at] is None else fixed.encode(taken[at])) == expected
        elif transit_of(serde) is not None:
            assert from_the_jvm(serde, taken[at]) == expected
        else:
            assert read_by(serde, taken[at]) == expected
            assert taken[at] is None or taken[at].decode() is not None  # UTF-8, without loss


TIMED, IN_SESSION = WindowedSerdes.time_windowed_serde_from, WindowedSerdes.session_windowed_serde_from
KEY = UUID(int=1)


@pytest.mark.parametrize(("serde", "key"), [
    (TIMED(TIMED(Serdes.uuid(), 10), 100), Windowed(Windowed(KEY, 5, 15), 0, 100)),
    (IN_SESSION(TIMED(Serdes.json("a int"), 10)), Windowed(Windowed({"a": 1}, 5, 15), 3, 7)),
    (TIMED(IN_SESSION(TIMED(Serdes.string(), 1)), 5), Windowed(Windowed(Windowed("k", 5, 6), 0, 9), 5, 10)),
])  # fmt: skip
def test_a_windowed_key_in_a_window_is_a_struct_in_a_struct_and_comes_back(serde: Any, key: Windowed) -> None:
    data = serde.serialize(key)
    assert serde.deserialize(data) == key
    taken, unreadable = Intake(serde).take([data])
    assert unreadable == []
    assert from_the_jvm(serde, taken[0]) == data


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_operators_read_refuse_and_write_what_the_serde_does(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SERDES)))
    serde, builder = SERDES[name], StreamsBuilder()
    stream = builder.stream("in", key=serde, value=serde)
    stream.map_values(per_record(lambda value: value, serde=serde)).to("out", key=serde, value=serde)
    run = StepRun(builder.build())
    for worker in run.workers:
        worker.unreadable = Unreadable(handler=ExceptionResponse.CONTINUE, topic=None, expected={0: ""})
    pairs = data.draw(st.lists(st.tuples(st.none() | BYTES_FOR[name], st.none() | BYTES_FOR[name]), min_size=1, max_size=6))
    run.pipe([("in", *pair, 0, ()) for pair in pairs])
    expected = [tuple(read_by(serde, side) for side in pair) for pair in pairs]
    assert [tuple(made[1:3]) for made in run.written] == [pair for pair in expected if "refused" not in pair]


@dataclass(frozen=True)
class Raising:
    """A serde of a user's own that does not raise SerdeError."""

    error: type[Exception] = ValueError
    name: ClassVar[str] = "raising"
    sql_type: ClassVar[str] = "string"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else value.encode()

    def deserialize(self, data: bytes | None) -> Any:
        if data == b"bad":
            raise self.error("no")
        return None if data is None else data.decode()


def test_whatever_a_deserializer_raises_makes_the_record_unreadable_but_what_may_work_later() -> None:
    assert Intake(Raising()).take([b"a", b"bad", None, b"\xff"]) == ([b"a", None, None, None], [1, 3])
    with pytest.raises(RetriableError):
        Intake(Raising(RetriableError)).take([b"a", b"bad"])


def test_a_deserializer_whose_settings_are_wrong_makes_no_record_unreadable() -> None:
    with pytest.raises(ConfigError):
        Intake(Raising(ConfigError)).take([b"a", b"bad"])


@dataclass(frozen=True)
class Documents:
    """A serde of a user's own, as it may be written for JSON without a schema: it says text and reads dicts."""

    name: ClassVar[str] = "documents"
    sql_type: ClassVar[str] = "string"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else json.dumps(value).encode()

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else json.loads(data)


class Codes(Documents):
    """It takes nothing but its own values."""

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else bytes([value["code"]])


def test_a_value_that_is_no_text_where_the_serde_says_so_is_refused_and_not_handed_over_as_its_repr() -> None:
    """It would come back as the text of a dict, and be written as such."""
    for serde, reason in ((Documents(), "in the same bytes"), (Codes(), "TypeError: string indices")):
        with pytest.raises(SerdeError, match=f"documents: its Spark type is string, .* of the type dict.*{reason}"):
            for_the_jvm(serde, b'{"code": 1}')
        assert Intake(serde).take([b'{"code": 1}', None]) == ([None, None], [0])
    assert for_the_jvm(Documents(), b'"text"') == b"text"


@dataclass(frozen=True)
class Point:
    x: int


class Points:
    """A serde of a user's own whose values are objects, where functions of Columns need dicts."""

    name, sql_type = "points", "struct<x:int>"

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else b"%d" % value.x

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else self.kind(int(data))


class PointsOrDicts(Points):
    def serialize(self, value: Any) -> bytes | None:
        return super().serialize(Point(**value) if isinstance(value, dict) else value)


def test_an_object_where_the_serde_says_struct_is_refused_as_what_its_serde_gave() -> None:
    with pytest.raises(SerdeError, match=r"points: functions of Columns .*struct<x:int> .* dict.*of the type complex, is none"):
        for_the_jvm(Points(complex), b"1")
    with pytest.raises(SerdeError, match=r"points: .* of the type Point, and it does not write the dict .* AttributeError"):
        for_the_jvm(Points(Point), b"1")
    serde = PointsOrDicts(Point)
    assert from_the_jvm(serde, for_the_jvm(serde, b"1")) == b"1"
    assert for_the_jvm(serde, None) is None


def test_a_number_of_another_type_than_the_serde_says_is_refused_as_what_its_serde_gave() -> None:
    class Amounts(Points):
        name, sql_type = "amounts", "double"

    with pytest.raises(SerdeError, match=r"amounts: functions of Columns .* double .*of the type Decimal, is none: double: "):
        for_the_jvm(Amounts(Decimal), b"1")


class Exiting(Documents):
    def deserialize(self, data: bytes | None) -> Any:
        raise ValueError if data == b"bad" else SystemExit("no codebook")


@pytest.mark.parametrize("before", [[], [b"bad"]])
def test_a_deserializer_that_would_end_the_process_is_named(before: list[bytes]) -> None:
    with pytest.raises(DeserializerEndedError, match=r"a deserializer raised SystemExit \(no codebook\)") as ended:
        Intake(Exiting()).take([*before, b"1"])
    assert ended.value.at == len(before)


def test_bytes_pass_as_they_are() -> None:
    assert intake_of(BYTES) is None


@pytest.mark.parametrize("bits", ["fff8000000000001", "7ff0000000000001", "7ff8000000000000"])
def test_there_is_one_nan(bits: str) -> None:
    fixed = fixed_width("double")
    assert fixed is not None
    assert fixed.encode(fixed.decode(bytes.fromhex(bits))) == bytes.fromhex("7ff8000000000000")
