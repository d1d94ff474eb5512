"""Log lines as JSON: what a collector gets of Tidemill's own lines, and of any other."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from tidemill.log_format import JsonLines


def line(message: str, *arguments: object, exc_info: Any = None) -> dict[str, Any]:
    record = logging.LogRecord("tidemill.thread", logging.INFO, __file__, 1, message, arguments, exc_info)
    text = JsonLines().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_keys_become_fields_and_numbers_stay_numbers() -> None:
    found = line("event=state application=%s from=%s after_ms=%d cause=%r", "app", "CREATED", 12.7, "it's \"on\"")
    assert (found["event"], found["application"], found["after_ms"], found["cause"]) == ("state", "app", 12, "it's \"on\"")
    assert (found["level"], found["logger"]) == ("INFO", "tidemill.thread")


def test_tables_and_lists_of_tasks_are_one_value() -> None:
    found = line("event=assigned thread=t tasks=[1_0, 1_1] standbys=[] stores={'counts': 7, 'other': 0} generation=3")
    assert found["tasks"] == "[1_0, 1_1]"
    assert found["stores"] == {"counts": 7, "other": 0}
    assert (found["standbys"], found["generation"]) == ("[]", 3)


def test_other_lines_are_a_message() -> None:
    found = line("stream-thread [%s] Finished stable assignment of tasks, no followup rebalances required.", "one")
    assert found["message"].startswith("stream-thread [one] Finished stable")


def test_a_field_never_takes_the_place_of_the_lines_own() -> None:
    found = line("event=x time=5 level=low")
    assert (found["time_"], found["level_"], found["level"]) == (5, "low", "INFO")


def test_an_exception_and_lines_within_values_stay_on_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = line("event=close-failed what=%r", "a\nb", exc_info=sys.exc_info())
    assert found["what"] == "a\nb"
    assert "ValueError: two\nlines" in found["exception"]


@pytest.mark.parametrize("text", ["event=", "event=x =", "event=x key='open", "event=x {not a pair}", "event=x a=b  c"])
def test_a_line_that_is_no_list_of_pairs_loses_nothing(text: str) -> None:
    found = line(text)
    told = " ".join(str(value) for key, value in found.items() if key not in ("time", "level", "logger", "thread_name"))
    for word in text.replace("=", " ").split():
        assert word.strip("'{}") in told or word in ("event", *found)
