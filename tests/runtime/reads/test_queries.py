"""Which of the hosts that a leader lists are asked: those that are addresses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import cast

import pytest

from tidemill.config.streams_config import StreamsConfig
from tidemill.endpoint import HostInfo
from tidemill.ids import ProcessId, TopicPartition
from tidemill.membership.member import step
from tidemill.membership.member_state import Assigned, MemberConfig, MemberState, new_member
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.runtime.group.group_side import GroupSide
from tidemill.runtime.reads.queries import InstanceReads
from tidemill.state.directory import StateDirectory

STRANGE = (HostInfo("pod-0..default", 8080), HostInfo("h\x1b[2J", 1), HostInfo("h", -1), HostInfo("h", 70_000))
PARTITION = TopicPartition("in", 0)


class Side:
    """The group's side of a thread, of which only the member's state is looked at."""

    def __init__(self, state: MemberState) -> None:
        self.state = state


def test_hosts_that_are_no_addresses_are_left_out_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hosts = dict.fromkeys((*STRANGE, HostInfo("good", 1)), (PARTITION,))
    info = AssignmentInfo(partitions_by_host=hosts, standby_partitions_by_host=hosts)
    event = Assigned(generation=1, member_id="m", incarnation=0, user_data=encode_assignment(info))
    state, _ = step(new_member(MemberConfig(process_id=ProcessId(1, 1))), event, 0)
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "none:1", "state.dir": str(tmp_path)})
    reads = InstanceReads(config, StateDirectory(tmp_path, "app"), lambda: None)
    reads._sides["thread"] = cast("GroupSide", Side(state))
    with caplog.at_level(logging.WARNING, "tidemill"):
        found = reads._hosts()
        assert reads._hosts() is found
    assert (set(found.active), set(found.standby)) == ({HostInfo("good", 1)}, {HostInfo("good", 1)})
    (line,) = caplog.messages
    assert line.isprintable()
    assert all(text in line for text in ("event=hosts-left-out", "pod-0..default:8080", "h:70000"))
