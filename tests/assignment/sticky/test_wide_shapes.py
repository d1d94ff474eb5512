"""Sticky and fallback on shapes wider than the other recorded ones: many clients, many sub-topologies, crowded buckets.

Recorded from the classes of Kafka 4.3.0 and 2.7.2 on JDK 17.
"""

from tests.assignment.recorded import recorded
from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.replay.assignors import ReplayOptions, replayed
from tidemill.replay.record_kinds import Kind
from tidemill.replay.recorded_answers import first_difference


def test_answers_on_wide_shapes_are_kafkas():
    lines = recorded("wide_shapes")
    assert {line["kind"] for line in lines} == {"sticky", "public_sticky", "fallback", "rack"}
    for line in lines:
        options = ReplayOptions(compatibility=Compatibility(line["compatibility"]))
        result = replayed(line, Kind(line["kind"]), options)
        assert first_difference(line["expected"], result) is None, line["id"]
