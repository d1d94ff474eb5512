"""Log events: what a collector gets of Tidemill's own lines as JSON, what a person reads, and of any other line."""

from __future__ import annotations

import ast
import json
import logging
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import JsonLines, LogEvent, TextLines, as_text


def line(message: object, *arguments: object, exc_info: Any = None) -> dict[str, Any]:
    record = logging.LogRecord("tidemill.thread", logging.INFO, __file__, 1, message, arguments, exc_info)
    text = JsonLines().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_fields_keep_their_types() -> None:
    tasks, at = [TaskId(1, 0)], TopicPartition("a", 3)
    event = LogEvent("assigned", thread="my app-1", tasks=tasks, stores={"counts": 7}, at=at, from_=None)
    found = line(event)
    assert (found["event"], found["thread"], found["tasks"], found["stores"]) == ("assigned", "my app-1", ["1_0"], {"counts": 7})
    assert (found["at"], found["from"], found["level"], found["logger"]) == ("a-3", None, "INFO", "tidemill.thread")


def test_the_text_quotes_what_is_not_one_word() -> None:
    tasks = [TaskId(0, 1), TaskId(1, 0)]
    event = LogEvent("started", state="/data/my state/app", tasks=tasks, stores={"n": 7}, empty="", after_ms=12)
    assert str(event) == "event=started state='/data/my state/app' tasks=[0_1, 1_0] stores={n: 7} empty='' after_ms=12"


def test_a_sentence_of_kafka_streams_comes_before_the_fields_and_is_the_message_in_json() -> None:
    event = LogEvent("state", says="stream-client [a] State transition from CREATED to REBALANCING", to="REBALANCING")
    assert str(event) == "stream-client [a] State transition from CREATED to REBALANCING event=state to=REBALANCING"
    found = line(event)
    assert (found["message"], found["event"], found["to"]) == (event.says, "state", "REBALANCING")
    assert "message" not in line(LogEvent("state", to="REBALANCING"))
    assert str(LogEvent("x", says="a\nevent=y")) == r"a\nevent=y event=x"


def test_other_lines_are_a_message_and_lose_nothing() -> None:
    found = line("stream-thread [%s] Finished stable assignment of tasks, no followup rebalances required.", "one")
    assert found["message"].startswith("stream-thread [one] Finished stable")
    assert line("event=started state=/data/my state/app")["message"] == "event=started state=/data/my state/app"


def test_a_field_never_takes_the_place_of_the_lines_own() -> None:
    found = line(LogEvent("x", time=5, level="low", event="y"))
    assert (found["time_"], found["level_"], found["level"], found["event"], found["event_"]) == (5, "low", "INFO", "x", "y")


def test_an_exception_and_lines_within_values_stay_on_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = line(LogEvent("close-failed", what="a\nb"), exc_info=sys.exc_info())
    assert found["what"] == "a\nb"
    assert "ValueError: two\nlines" in found["exception"]


@given(st.text())
def test_no_value_passes_for_another_field_or_line(value: str) -> None:
    text = as_text(value)
    assert text.isprintable()
    if any(of in value for of in " =\n\x1b'\"[]{},"):
        assert ast.literal_eval(text) == value
    else:
        assert text == value or ast.literal_eval(text) == value
    assert line(LogEvent("x", value=value))["value"] == value


def test_a_name_that_is_no_text_is_escaped() -> None:
    record = logging.LogRecord("tidemill", logging.INFO, __file__, 1, LogEvent("x", path="a\udc80"), (), None)
    text = JsonLines().format(record)
    assert text.encode("utf-8")
    assert json.loads(text)["path"] == "a\udc80"


def test_a_line_of_text_keeps_its_line_feeds_and_no_other_control_character() -> None:
    def text(message: object, *arguments: object) -> str:
        record = logging.LogRecord("kafka", logging.INFO, __file__, 1, message, arguments, None)
        return TextLines("%(levelname)s %(message)s").format(record)

    assert text("to clients as: \n%s", "a=[]\tb") == "INFO to clients as: \na=[]\tb"
    assert text("%s", "\x1b[2J\x1b]0;owned\x07\r\x9b1m\u202e\ud800") == (
        "INFO \\x1b[2J\\x1b]0;owned\\x07\\r\\x9b1m\\u202e\\ud800"
    )
    assert text(LogEvent("x", name="a\x1bb")) == "INFO event=x name='a\\x1bb'"
