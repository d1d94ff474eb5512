"""User data of the ``stream`` protocol: SubscriptionInfo (member to leader) and AssignmentInfo (leader to member)."""

from tidemill.endpoint import HostInfo, host_of
from tidemill.membership.wire.assignment import (
    AssignmentInfo,
    PartitionsByHost,
    decode_assignment,
    encode_assignment,
    encode_hosts,
)
from tidemill.membership.wire.subscription import (
    LATEST_SUPPORTED_VERSION,
    UNKNOWN_VERSION,
    AnySubscription,
    FutureSubscription,
    SubscriptionInfo,
    decode_subscription,
    encode_subscription,
    known_subscription,
)
from tidemill.membership.wire.task_ids import NamedTaskId, WireTaskId, parse_wire_task

__all__ = [
    "LATEST_SUPPORTED_VERSION",
    "UNKNOWN_VERSION",
    "AnySubscription",
    "AssignmentInfo",
    "FutureSubscription",
    "HostInfo",
    "NamedTaskId",
    "PartitionsByHost",
    "SubscriptionInfo",
    "WireTaskId",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_hosts",
    "encode_subscription",
    "host_of",
    "known_subscription",
    "parse_wire_task",
]
