"""Whatever bytes others send, reading them ends at once: with what they say, or with one clear error of ours."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.security.bad_bytes import KINDS, READERS, Kind
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.errors import TidemillError
from tidemill.ids import ProcessId
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, complete, prepare
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.topology_metadata import TopicsInfo, TopologyMetadata
from tidemill.membership.wire import SubscriptionInfo, encode_subscription
from tidemill.membership.wire.assignment import AssignorError

_LIMIT_S = 30.0
HEALTHY = ProcessId(7, 7)
FACTS = TopologyMetadata(subtopologies=(TopicsInfo(subtopology=0, source_topics=frozenset({"in"})),))
CONFIG = LeaderConfig(leader_process_id=HEALTHY, assignor=HighAvailabilityTaskAssignor())


def test_there_are_two_hundred_kinds_and_none_is_there_twice() -> None:
    assert len({kind.id for kind in KINDS}) == len(KINDS) >= 200
    assert {kind.reader for kind in KINDS} == set(READERS)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_each_is_refused_at_once_with_a_sentence(kind: Kind) -> None:
    began = time.monotonic()
    with pytest.raises((TidemillError, ValueError)) as caught:
        READERS[kind.reader](kind.data)
    assert time.monotonic() - began < _LIMIT_S
    assert isinstance(caught.value, TidemillError) or kind.reader == "rows of another instance"
    assert 20 < len(str(caught.value)) < 2000


@pytest.mark.parametrize("reader", READERS)
@given(data=st.binary(max_size=300))
@example(data=b"")
def test_random_bytes_are_read_or_refused(reader: str, data: bytes) -> None:
    try:
        READERS[reader](data)
    except TidemillError:
        pass
    except ValueError:
        assert reader == "rows of another instance"


def test_a_garbled_length_costs_no_memory() -> None:
    huge = [kind for kind in KINDS if "huge" in kind.what]
    assert huge
    tracemalloc.start()
    for kind in huge:
        with pytest.raises((TidemillError, ValueError)):
            READERS[kind.reader](kind.data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


# --- the leader: one member's bytes are nobody else's trouble ---------------------------------------------------------------


def _led(members: dict[str, Subscription]) -> StreamsGroupAssignment:
    prepared = prepare(members, ClusterMetadata(partition_counts={"in": 4}), FACTS, CONFIG)
    if isinstance(prepared, StreamsGroupAssignment):
        return prepared
    return complete(prepared, FetchedOffsets(), 0)


def _healthy() -> Subscription:
    return Subscription(user_data=encode_subscription(SubscriptionInfo(process_id=HEALTHY)))


BROKEN = [kind for kind in KINDS if kind.reader == "SubscriptionInfo"]


@pytest.mark.parametrize("kind", BROKEN, ids=[kind.what for kind in BROKEN])
def test_a_member_that_sends_them_gets_an_error_and_the_others_all_the_tasks(kind: Kind) -> None:
    answer = _led({"good": _healthy(), "broken": Subscription(user_data=kind.data)})
    assert answer.refusal is None
    assert answer.left_out == {"broken"}
    assert len(answer.members["good"].partitions) == 4
    assert answer.members["broken"].info.error_code == AssignorError.ASSIGNMENT_ERROR


@given(data=st.binary(max_size=200), flip=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_no_bytes_of_one_member_keep_the_others_from_their_answer(data: bytes, flip: int, bits: int) -> None:
    """Random ones, and good ones with one byte changed: if these can be read, they count for what they say."""
    said = bytearray(_healthy().user_data)
    said[flip % len(said)] ^= bits
    for garbled in (data, bytes(said)):
        answer = _led({"good": _healthy(), "other": Subscription(user_data=garbled)})
        asked_to_end = answer.refusal is not None and answer.refusal.code is AssignorError.SHUTDOWN_REQUESTED
        assert answer.refusal is None or asked_to_end
        assert set(answer.members) == {"good", "other"}
