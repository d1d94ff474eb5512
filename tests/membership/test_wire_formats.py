"""The wire formats on values and bytes that no vector holds: round trips, damage, future versions."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.assignment.model import LONG_MAX
from tidemill.errors import WireFormatError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.wire import (
    AssignmentInfo,
    FutureSubscription,
    HostInfo,
    NamedTaskId,
    SubscriptionInfo,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_hosts,
    encode_subscription,
)
from tidemill.membership.wire.java_data import from_modified_utf8, to_modified_utf8

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text("ab-:9\0é水𝄞", max_size=12)
JAVA_TEXT = st.text("ab-:9\0é水𝄞\ud834\udd1e", max_size=12)
TASKS = st.builds(TaskId, INT32, INT32)
NAMED_TASKS = st.builds(NamedTaskId, TEXT.filter(bool), INT32, INT32)
PARTITIONS = st.lists(
    st.builds(TopicPartition, st.sampled_from(["orders", "télé", "a\0b", "𝄞", ""]), INT32), max_size=6, unique=True
).map(tuple)
HOSTS = st.dictionaries(st.builds(HostInfo, TEXT, st.integers(0, 65535)), PARTITIONS, max_size=4)


@st.composite
def subscriptions(draw):
    version = draw(st.integers(1, 11))
    tasks = TASKS | NAMED_TASKS if version >= 10 else TASKS
    sums = st.sampled_from([-2, -3]) if version < 7 else INT64
    task_sums = draw(st.dictionaries(tasks, sums, max_size=8))
    return SubscriptionInfo(
        version=version,
        latest_supported_version=draw(st.integers(version, 20)) if version >= 3 else -1,
        process_id=ProcessId(draw(INT64), draw(INT64)),
        user_endpoint=draw(st.none() | TEXT.filter(bool)) if version >= 2 else None,
        task_offset_sums=task_sums,
        unique_field=draw(st.integers(-128, 127)) if version >= 8 else 0,
        error_code=draw(st.integers(-1, 4)) if version >= 9 else 0,
        client_tags=draw(st.dictionaries(TEXT, TEXT, max_size=4)) if version >= 11 else {},
    )


@st.composite
def assignments(draw):
    version = draw(st.integers(1, 11))
    tasks = TASKS | NAMED_TASKS if version >= 10 else TASKS
    return AssignmentInfo(
        version=version,
        commonly_supported_version=draw(st.integers(version, 20)) if version >= 3 else -1,
        active_tasks=tuple(draw(st.lists(tasks, max_size=6))),
        standby_tasks=draw(st.dictionaries(tasks, PARTITIONS, max_size=4)),
        partitions_by_host=draw(HOSTS) if version >= 2 else {},
        standby_partitions_by_host=draw(HOSTS) if version >= 6 else {},
        error_code=draw(st.integers(-1, 4)) if version >= 4 else 0,
        next_rebalance_ms=draw(st.integers(0, LONG_MAX)) if version >= 7 else LONG_MAX,
    )


@settings(deadline=None)
@given(subscriptions())
def test_a_subscription_of_any_version_is_read_back_as_it_was_written(info):
    assert decode_subscription(encode_subscription(info)) == info


@settings(deadline=None)
@given(assignments())
def test_an_assignment_of_any_version_is_read_back_as_it_was_written(info):
    assert decode_assignment(encode_assignment(info)) == info


@settings(deadline=None)
@given(assignments())
def test_a_section_of_hosts_made_once_gives_the_same_bytes(info):
    hosts = encode_hosts(info.version, info.partitions_by_host, info.standby_partitions_by_host)
    assert encode_assignment(info, hosts) == encode_assignment(info)


@settings(deadline=None)
@given(JAVA_TEXT)
def test_modified_utf8_is_read_back_and_never_holds_a_zero_byte(text):
    data = to_modified_utf8(text)
    assert b"\0" not in data
    joined = text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    assert from_modified_utf8(data) == joined


def test_modified_utf8_is_javas():
    assert to_modified_utf8("\0") == b"\xc0\x80"
    assert to_modified_utf8("𝄞") == bytes.fromhex("eda0b4edb49e")
    assert to_modified_utf8("é") == "é".encode()


@settings(max_examples=60, deadline=None)
@given(
    subscriptions().map(lambda info: (encode_subscription(info), decode_subscription))
    | assignments().map(lambda info: (encode_assignment(info), decode_assignment)),
    st.data(),
)
def test_truncated_bytes_are_refused(encoded, cut):
    """By the decoder of their kind: the beginning of a subscription can be a whole assignment without tasks."""
    data, decode = encoded
    with pytest.raises(WireFormatError, match=r"can't be decoded|expected"):
        decode(data[: cut.draw(st.integers(0, len(data) - 1))])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120) | st.tuples(st.integers(1, 11), st.binary(max_size=120)).map(
    lambda pair: struct.pack(">i", pair[0]) + pair[1]
))
def test_garbage_is_refused_or_is_what_its_reading_writes(data):
    for decode, encode in ((decode_subscription, encode_subscription), (decode_assignment, encode_assignment)):
        try:
            read = decode(data)
        except WireFormatError:
            continue
        if not isinstance(read, FutureSubscription):
            assert decode(encode(read)) == read


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("count", [2**31 - 1, -1, -(2**31)])
def test_an_absurd_number_of_elements_is_refused_without_allocating_for_it(version, count):
    empty_subscription = encode_subscription(
        SubscriptionInfo(version=version, process_id=ProcessId(0, 0), latest_supported_version=max(version, 3))
    )
    empty_assignment = encode_assignment(AssignmentInfo(version=version))
    refused = 0
    tracemalloc.start()
    try:
        for decode, data in ((decode_subscription, empty_subscription), (decode_assignment, empty_assignment)):
            start = 4 + (4 if version >= 3 else 0) + (16 if decode is decode_subscription else 0)
            for at in range(start, len(data) - 3, 4):
                damaged = data[:at] + struct.pack(">i", count) + data[at + 4 :]
                try:
                    decode(damaged)
                except WireFormatError:
                    refused += 1
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert refused >= 3


def test_a_number_that_the_bytes_cannot_hold_is_refused_before_anything_of_it_is_read():
    with pytest.raises(WireFormatError, match=r"number of active tasks is 3, expected 0 to 2 \(28 bytes are left\)"):
        decode_assignment(struct.pack(">iii", 11, 11, 3) + bytes(28))


def test_bytes_after_the_last_field_are_refused():
    data = encode_subscription(SubscriptionInfo(process_id=ProcessId(1, 2)))
    with pytest.raises(WireFormatError, match="1 bytes follow the last field"):
        decode_subscription(data + b"\0")


def test_a_subscription_of_a_future_version_tells_its_two_versions_only():
    data = struct.pack(">ii", 14, 15) + b"whatever the future holds"
    assert decode_subscription(data) == FutureSubscription(version=14, latest_supported_version=15)


def test_an_assignment_of_a_future_version_is_refused():
    with pytest.raises(WireFormatError, match="version is 12, expected 1 to 11"):
        decode_assignment(struct.pack(">ii", 12, 12))


@pytest.mark.parametrize(("version", "latest"), [(0, 11), (-1, 11), (3, -1), (5, 4), (12, 11)])
def test_version_numbers_that_contradict_each_other_are_refused(version, latest):
    info = SubscriptionInfo(version=version, latest_supported_version=latest, process_id=ProcessId(0, 0))
    with pytest.raises(WireFormatError, match="version"):
        encode_subscription(info)
    with pytest.raises(WireFormatError, match="version"):
        decode_subscription(struct.pack(">ii", version, latest) + bytes(64))


@pytest.mark.parametrize("version", range(1, 10))
def test_a_named_topology_is_refused_by_versions_that_lack_names(version):
    named = {NamedTaskId("billing", 1, 0): -2}
    with pytest.raises(WireFormatError, match="billing__1_0"):
        encode_subscription(
            SubscriptionInfo(
                version=version, latest_supported_version=11, process_id=ProcessId(0, 0), task_offset_sums=named
            )
        )
    with pytest.raises(WireFormatError, match="billing__1_0"):
        encode_assignment(AssignmentInfo(version=version, active_tasks=tuple(named)))


def test_a_topic_number_that_the_dictionary_lacks_is_refused():
    info = AssignmentInfo(partitions_by_host={HostInfo("h", 1): (TopicPartition("t", 3),)})
    data = encode_assignment(info)
    entry = struct.pack(">ii", 0, 3)
    assert data.count(entry) == 1
    with pytest.raises(WireFormatError, match="topic number 9 is not in the dictionary"):
        decode_assignment(data.replace(entry, struct.pack(">ii", 9, 3)))
