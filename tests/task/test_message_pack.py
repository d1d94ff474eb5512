"""Values as MessagePack: what is packed comes back equal, and bytes of anything else are refused with what was expected."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MisfitError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.task.batch import (
    BatchReport,
    BatchRequest,
    CommittingMember,
    Marker,
    Outcome,
    PartitionStats,
    SourceProgress,
    TaskRun,
)
from tidemill.task.batch_id import BatchId, OffsetRange
from tidemill.task.message_pack import as_utf8, pack, unpack

LONG = 2**63 - 1
KINDS = [BatchRequest, BatchReport, Marker, CommittingMember, SourceProgress, BatchId]

longs = st.integers(-LONG - 1, LONG)
st.register_type_strategy(int, longs)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(str, st.text(st.characters(exclude_categories=["Cs"])))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_value_comes_back_as_it_was(kind: type[object], data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    assert unpack(pack(value), kind) == value


def test_keys_and_rows_come_back_as_the_types_that_they_were() -> None:
    found = unpack(pack(BatchId({TopicPartition("in", 3): OffsetRange(5, 9)})), BatchId)
    assert str(found) == "in-3:5-9"
    request = BatchRequest(batch_id=1, inputs={}, tasks=(TaskRun(task=TaskId(1, 0), directory="", epoch=""),))
    assert str(unpack(pack(request), BatchRequest).tasks[0].task) == "1_0"


def test_a_sum_of_timestamps_has_more_than_64_bits() -> None:
    latest = PartitionStats(1, 1, LONG, LONG, float(LONG))
    arrived = latest.plus(latest).plus(latest)
    report = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, partition_stats={TopicPartition("in", 0): arrived})
    assert unpack(pack(report), BatchReport).partition_stats[TopicPartition("in", 0)].sum_ms == pytest.approx(3 * LONG)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 bytes that begin with b'' are no BatchRequest: Input data was truncated"),
        (b'{"batch_id": 1}', "15 bytes that begin with b'{\"batch_id\": 1}' are no BatchRequest: "),
        (pack(BatchRequest(batch_id=1, inputs={}))[:-1], "are no BatchRequest: Input data was truncated"),
        (pack({"batch_id": 1}), "Object missing required field `inputs`"),
        (pack({"batch_id": "1", "inputs": {}}), r"Expected `int`, got `str` - at `\$\.batch_id`"),
        (pack({"batch_id": 1, "inputs": {"in-0": 5}}), "Expected `array`, got `str`"),
        (pack({"batch_id": 1, "inputs": {}, "tasks": [{"task": [1]}]}), r"Expected `array` of length 2, got 1 - at `\$\.tasks"),
        (b"\x91" * 100_000, "are no BatchRequest: "),
    ],
)
def test_other_bytes_are_refused_with_what_was_found_and_what_was_expected(data: bytes, problem: str) -> None:
    with pytest.raises(MisfitError, match=problem) as raised:
        unpack(data, BatchRequest)
    assert "the same version of Tidemill" in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_value_of_another_class_is_refused_before_it_is_sent() -> None:
    with pytest.raises(TypeError, match="can't be sent: it is of int64, expected Python's own types and dataclasses"):
        pack(SourceProgress(records=np.int64(3)))  # type: ignore[arg-type]


def test_other_mappings_and_subclasses_arrive_as_pythons_own() -> None:
    ends = MappingProxyType({TopicPartition("in", 0): 5})
    assert unpack(pack(SourceProgress(ends=ends)), SourceProgress) == SourceProgress(ends=dict(ends))
    report = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, timings_ms={"run": np.float64(1.5)})
    assert type(unpack(pack(report), BatchReport).timings_ms["run"]) is float


def test_text_that_is_not_utf8_is_said_and_not_sent() -> None:
    with pytest.raises(StopError, match=r"'/state\\udcff' can't be sent .* give folders and topics names in UTF-8"):
        pack(TaskRun(task=TaskId(1, 0), directory="/state\udcff", epoch=""))


def test_a_message_that_quotes_half_a_character_is_escaped_and_any_other_stays() -> None:
    assert unpack(pack(as_utf8("found \ud83d")), str) == "found \\ud83d"
    assert as_utf8("caf\u00e9 \x7f \U0001f600") == "caf\u00e9 \x7f \U0001f600"
