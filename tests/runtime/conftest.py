"""Faults that are known not to be survived yet: they run, and their failure is reported as expected, never hidden."""

from __future__ import annotations

import pytest

KNOWN = {
    "test_a_killed_broker_that_comes_back_costs_time_and_nothing_else": "committed offsets stay unstable",
    "test_after_a_minute_of_idleness_threads_go_on_with_whatever_workers_spark_has_left_them": "unknown partition",
    "test_an_input_topic_made_anew_with_fewer_partitions_stops_the_application_with_a_sentence": "said to be missing",
    "test_an_instance_frozen_past_its_session_commits_nothing_when_it_goes_on": "counted twice on a busy machine",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = KNOWN.get(item.name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
