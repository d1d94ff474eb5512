"""Values of a scenario's file in their types, and what is refused."""

from __future__ import annotations

import pytest

from tidemill.documents import Document
from tidemill.errors import ConfigError
from tidemill.sim.scenario_file import scenario_of, setting_value, settings_of, surroundings_value


@pytest.mark.parametrize("value", [["zone", "cluster"], "zone+cluster"])
def test_tags_are_a_list_or_as_on_the_command_line(value: object) -> None:
    assert setting_value("rack.aware.assignment.tags", value) == ("zone", "cluster")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rack.aware.assignment.tags", 5, "a list of texts"),
        ("rack.aware.assignment.tags", ["zone", 5], "a list of texts"),
        ("rack.aware.assignment.strategy", "best", "one of none, "),
        ("max.warmup.replicas", "two", "a whole number, 0 or more"),
        ("max.warmup.replicas", 2.0, "a whole number, 0 or more"),
        ("max.warmup.replicas", [2], "a whole number, 0 or more"),
        ("max.warmup.replicas", 1 << 63, "a whole number, 0 or more, of at most 64 bits"),
    ],
)
def test_a_setting_of_another_kind_is_refused_with_what_was_expected(name: str, value: object, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of({name: value})
    assert str(refused.value).startswith(f"{name} = {value!r}: expected {expected}")


@pytest.mark.parametrize("value", ["many", 0, -1, [5], float("inf"), float("nan"), "1e999"])
def test_a_speed_is_a_number_above_0(value: object) -> None:
    with pytest.raises(ConfigError, match="expected a number greater than 0"):
        surroundings_value("restore_records_per_s", value)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"subtopologies": [{"number": "x", "partitions": 2}]}, "number = 'x' can't be read"),
        ({"subtopologies": [{"number": 0, "partitions": [2]}]}, r"partitions = \[2\] can't be read"),
        ({"subtopologies": [{"number": 0, "partitions": 2, "records": 10**400}]}, "records = 10+ .*expected whole"),
        ({"subtopologies": [{"number": 0, "partitions": 2, "records": {"0_0": 1}}]}, "records = .* .*expected whole"),
        ({"subtopologies": [{"number": 0, "partitions": 2, "processed": [5, -1]}]}, "processed = .* .*expected whole"),
        ({"clients": [{"name": "A", "process_id": "no id"}]}, "A: process_id = 'no id' can't be read"),
        ({"events": [{"at_s": "soon", "do": "join"}]}, "join: at_s = 'soon' can't be read .expected a number of seconds"),
    ],
)
def test_a_value_that_a_table_can_t_have_is_refused_with_its_place(table: Document, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        scenario_of(table, "x")
