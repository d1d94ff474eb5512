"""Whether a member that is closed leaves its group at once, or is waited for until its session ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kafka.group.group_application import Application, create_topic, joined
from tests.waiting import until
from tidemill.kafka.admin.groups import describe_group
from tidemill.kafka.group.coordinator import GroupCoordinator
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig


@pytest.mark.broker
@pytest.mark.parametrize(
    ("instance_id", "leave_on_close", "leaves"),
    [(None, None, True), (None, False, False), ("static", None, False), ("static", True, True)],
    ids=["dynamic", "dynamic that is to stay", "static", "static that is to leave"],
)
def test_a_closed_members_partitions_are_taken_over_at_once_or_after_its_session(
    bootstrap_servers: str,
    unique_name: Callable[[str], str],
    instance_id: str | None,
    leave_on_close: bool | None,
    leaves: bool,
) -> None:
    topic, group = unique_name("input"), unique_name("group")
    partitions = create_topic(bootstrap_servers, topic, 2)
    stays, goes = Application(topics=[topic]), Application(topics=[topic])
    session_ms = 600_000 if leaves else 10_000
    options = {"instance_id": instance_id, "leave_on_close": leave_on_close, "session_timeout_ms": session_ms}
    other = joined(bootstrap_servers, stays, group, "stays")
    member = joined(bootstrap_servers, goes, group, "goes", **options)
    try:
        assert until(lambda: len(stays.owned) == len(goes.owned) == 1)
        assert member.hands_over(None) is leaves
        member.close()
        left = describe_group({"bootstrap_servers": bootstrap_servers}, group, limit_s=60)
        assert left is not None
        assert len(left.members) == (1 if leaves else 2)
        assert until(lambda: stays.owned == set(partitions))
        assert not other.hands_over(None)  # nobody else is left
    finally:
        stays.closed = goes.closed = True
        other.close()
        member.close()


def test_an_answer_that_cant_be_read_is_no_error_of_a_member_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> None:
        raise ValueError("there are tagged fields, expected none")

    monkeypatch.setattr(GroupCoordinator, "leave", unreadable)
    settings = {"bootstrap_servers": "127.0.0.1:1"}
    config = GroupMemberConfig(client_settings=settings, group_id="g", client_id="c", instance_id="static")
    GroupMember(config, Application([])).close(leave=True)


@pytest.mark.parametrize("eager", [False, True], ids=["cooperative", "eager"])
def test_a_hand_over_is_prepared_only_where_tasks_go_on_meanwhile(eager: bool) -> None:
    settings = {"bootstrap_servers": "127.0.0.1:1"}
    member = GroupMember(GroupMemberConfig(client_settings=settings, group_id="g", client_id="c", eager=eager), Application([]))
    assert member.hands_over(None) is not eager
