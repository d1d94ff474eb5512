"""What travels in the internal topics of a foreign-key join is read as it was written, and as older members wrote it."""

from __future__ import annotations

import pytest

from tidemill import Serdes
from tidemill.dsl.serdes_foreign_key import SubscriptionResponseSerde, SubscriptionSerde
from tidemill.errors import SerdeError
from tidemill.topology.foreign_keys import Instruction, SubscriptionResponse, SubscriptionWrapper

HASH = bytes(range(16))
SUBSCRIPTIONS, RESPONSES = SubscriptionSerde(Serdes.string()), SubscriptionResponseSerde(Serdes.long())


@pytest.mark.parametrize("instruction", Instruction)
@pytest.mark.parametrize("asked", [HASH, None])
def test_a_subscription_is_read_as_it_was_written(instruction: Instruction, asked: bytes | None) -> None:
    subscription = SubscriptionWrapper(asked, instruction, "o1", 7)
    assert SUBSCRIPTIONS.deserialize(SUBSCRIPTIONS.serialize(subscription)) == subscription


def test_a_subscription_of_version_0_says_no_partition_and_is_written_so_again() -> None:
    data = b"\x00\x02" + HASH + b"o1"
    subscription = SubscriptionWrapper(HASH, Instruction.PROPAGATE_NULL_IF_NO_MATCH, "o1", None)
    assert SUBSCRIPTIONS.deserialize(data) == subscription
    assert SUBSCRIPTIONS.serialize(subscription) == data


@pytest.mark.parametrize("value", [5, None])
@pytest.mark.parametrize("asked", [HASH, None])
def test_an_answer_is_read_as_it_was_written_without_its_way_back(value: int | None, asked: bytes | None) -> None:
    answer = SubscriptionResponse(asked, value, 3)
    assert RESPONSES.deserialize(RESPONSES.serialize(answer)) == SubscriptionResponse(asked, value, None)


OTHER_DATA = [b"\x02\x00" + HASH + bytes(8), b"\x01\x00abc", b"\x81\x09k1" + bytes(4), b"\x81", b"\x81\x02k1" + b"\xff" * 4]


@pytest.mark.parametrize("data", OTHER_DATA)
def test_other_data_is_no_subscription(data: bytes) -> None:
    with pytest.raises(SerdeError, match="subscription"):
        SUBSCRIPTIONS.deserialize(data)


@pytest.mark.parametrize("data", [b"\x01" + HASH, b"\x00short"])
def test_other_data_is_no_answer(data: bytes) -> None:
    with pytest.raises(SerdeError, match="response"):
        RESPONSES.deserialize(data)


@pytest.mark.parametrize("serde", [SUBSCRIPTIONS, RESPONSES])
@pytest.mark.parametrize("data", [None, b""])
def test_a_record_without_a_value_is_neither(serde: SubscriptionSerde | SubscriptionResponseSerde, data: bytes | None) -> None:
    with pytest.raises(SerdeError, match="found no value"):
        serde.deserialize(data)
