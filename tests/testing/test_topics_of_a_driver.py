"""Topics of a test driver, without one: what they refuse, and say about it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tidemill import Serdes
from tidemill.errors import TopologyError
from tidemill.testing import TestRecord
from tidemill.testing.topics import RawRecord, TestInputTopic, TestOutputTopic

TEXT = Serdes.string()


def topic(piped: list[Any], **settings: Any) -> TestInputTopic:
    given = {"key": TEXT, "value": TEXT, "start": 0, "advance": 0, **settings}
    return TestInputTopic(piped.append, "in", **given)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.pipe_input("k", "v", "5"), "a record for in: the timestamp '5' is of type str"),
        (lambda t: t.pipe_input("k", "v", 1.5), r"a record for in: the timestamp 1\.5 is of type float"),
        (lambda t: t.pipe_input("k", "v", datetime(2026, 1, 1)), "a record for in: 2026-01-01 00:00:00 has no time zone"),
        (lambda t: t.pipe_input("k", "v", 2**63), "a record for in: the timestamp is 9223372036854775808, expected one from 0"),
        (lambda t: t.pipe_input("k", "v", 1, {"a": b"b"}), "a record for in: the headers are of type dict"),
        (lambda t: t.pipe_input("k", "v", 1, [("a", "b")]), "a record for in: the value of the header 'a' is of type str"),
        (lambda t: t.pipe_input("k", "v", 1, [("a",)]), "a record for in: a header is .*, expected a pair"),
        (lambda t: t.pipe_records([TestRecord("k", "v")], batch=-1), "pipe_records: batch is -1, expected a number of records"),
        (lambda t: t.pipe_key_values({"k": "v"}), r"expected pairs \(key, value\), got 'k'; of a dict give its items\(\)"),
        (lambda t: t.pipe_key_values([("k", "v", 5)]), r"pipe_key_values: expected pairs \(key, value\), got \('k', 'v', 5\)"),
        (lambda t: t.pipe_key_values([("k", "v")], "5"), "start: the timestamp '5' is of type str"),
        (lambda t: t.pipe_values(["v"], advance=5), "advance: expected a start with it, or the topic's own"),
        (lambda t: t.pipe_records([TestRecord("k", "v")], batch=0), "pipe_records: batch is 0, expected a number of records"),
    ],
)
def test_what_is_no_record_is_refused_before_anything_runs(call: Callable[[TestInputTopic], None], said: str) -> None:
    piped: list[Any] = []
    with pytest.raises(TopologyError, match=said):
        call(topic(piped))
    assert piped == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"start": None}, "create_input_topic: start: the timestamp None is of type NoneType"),
        ({"start": datetime(2026, 1, 1)}, "create_input_topic: start: 2026-01-01 00:00:00 has no time zone"),
        ({"start": -1}, "create_input_topic: start: the timestamp is -1, expected one from 0"),
        ({"key": "string"}, "the key of the topic in: 'string' is not a serde"),
        ({"value": None}, "the value of the topic in: a serde is missing"),
    ],
)
def test_what_makes_no_topic_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        topic([], **settings)


def test_times_may_be_datetimes() -> None:
    piped: list[Any] = []
    noon = datetime(1970, 1, 1, 13, 0, 0, 5_999, tzinfo=timezone(timedelta(hours=1)))
    into = topic(piped, start=noon, advance=timedelta(seconds=1))
    into.pipe_key_values([("k", "own"), ("k", "next")])
    into.pipe_input("k", "given", noon)
    into.pipe_records([TestRecord("k", "of a record", noon)])
    assert [batch[0].timestamp - 43_200_005 for batch in piped] == [0, 1000, 0, 0]


def test_what_is_no_record_is_refused_before_any_is_piped() -> None:
    piped: list[Any] = []
    records: Any = [TestRecord("k", "v"), ("k", "w")]
    with pytest.raises(TopologyError, match=r"pipe_records: expected TestRecord\(.*, got \('k', 'w'\); pairs are for pipe_key"):
        topic(piped).pipe_records(records)
    assert piped == []


def test_the_topics_own_time_is_moved_on_by_hand() -> None:
    piped: list[Any] = []
    into = topic(piped, start=10, advance=1)
    into.pipe_input("k", "first")
    into.advance_time(timedelta(seconds=2))
    into.pipe_input("k", "given", 5)
    into.advance_time(100)
    into.pipe_input("k", "last")
    assert [batch[0].timestamp for batch in piped] == [10, 5, 2_111]


def test_several_records_may_have_times_of_their_own_as_in_kafka_streams() -> None:
    piped: list[Any] = []
    into = topic(piped, start=7)
    into.pipe_key_values([("k", "1"), ("k", "2"), ("k", "3")], 100, timedelta(milliseconds=5))
    into.pipe_values(["4", "5"], datetime(1970, 1, 1, tzinfo=timezone.utc), 3)
    into.pipe_input("k", "6")
    assert [batch[0].timestamp for batch in piped] == [100, 105, 110, 0, 3, 7]


def test_an_output_topic_needs_serdes() -> None:
    with pytest.raises(TopologyError, match="the value of the topic out: 'long' is not a serde"):
        TestOutputTopic([], "out", TEXT, "long")  # type: ignore[arg-type]


def test_a_timestamp_below_zero_is_for_the_program_to_refuse() -> None:
    piped: list[Any] = []
    topic(piped).pipe_input("k", "v", -1)
    topic(piped).pipe_input("k", "v", True, [("a", None)])
    assert piped == [[RawRecord("in", b"k", b"v", -1)], [RawRecord("in", b"k", b"v", 1, [("a", None)])]]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, "", "a b", 5])
def test_what_is_no_name_of_a_topic_is_refused_as_an_output_topic(name: Any) -> None:
    with pytest.raises(TopologyError, match=f"{name!r} can't be the name of a topic"):
        TestOutputTopic([], name, TEXT, TEXT)
