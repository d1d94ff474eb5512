"""``task.assignor.class``: whom the setting names, and what the leader of an instance does with a user's class."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterable, Mapping

import pytest

from tidemill.assignment.balanced.assignor import BalancedTaskAssignor
from tidemill.assignment.choice import choose_assignor
from tidemill.assignment.custom import CheckedAssignor
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import ApplicationState, Assignment, ClientAssignment
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor, PublicStickyTaskAssignor, StickyTaskAssignor
from tidemill.config.slices import GroupConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.admin.client import TopicSpec
from tidemill.kafka.group.protocol import GroupAssignment
from tidemill.membership.joined_group import Subscription
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.membership.wire import SubscriptionInfo, decode_assignment, encode_subscription
from tidemill.runtime.group import leading

P1, P2 = ProcessId(1, 0), ProcessId(2, 0)
INTERNALS = "org.apache.kafka.streams.processor.internals.assignment."
STORE = "app-store-changelog"
FACTS = TopologyMetadata(
    subtopologies=(
        TopicsInfo(subtopology=0, source_topics=frozenset({"in"}), changelog_topics=frozenset({STORE})),
    ),
    internal_topics={STORE: InternalTopicConfig(name=STORE, is_repartition=False)},
)


class OnTheLast:
    """Everything on the client of the greatest id; from the second call on, everything twice."""

    calls = 0

    def assign(self, state: ApplicationState) -> Assignment:
        type(self).calls += 1
        everything = ClientAssignment(active=frozenset(state.tasks))
        clients = sorted(client.process_id for client in state.clients)
        held = dict.fromkeys(clients, everything if self.calls > 1 else ClientAssignment())
        return Assignment(clients={**held, clients[-1]: everything}, followup_needed=False)


class Broker:
    """The admin calls of a rebalance."""

    def create_topics(self, specs: Iterable[TopicSpec]) -> frozenset[str]:
        return frozenset({spec.name for spec in specs})

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """It has never run; no source topic is a changelog."""
        del group, partitions, timeout_s
        return {}


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("shop_rules")
    made.OnTheLast = OnTheLast  # type: ignore[attr-defined]
    OnTheLast.calls = 0
    monkeypatch.setitem(sys.modules, "shop_rules", made)
    monkeypatch.setattr(leading, "fence_vanished", lambda *_arguments: None)


def _leader(**settings: str) -> leading.Leader:
    config = StreamsConfig.read_slice(GroupConfig, {"application.id": "app", **settings})
    return leading.Leader(config, Broker(), P1, FACTS, {}, {}, now_ms=lambda: 0)  # type: ignore[arg-type]


def _said(process: ProcessId, *owned: TopicPartition, running: Iterable[TaskId] = ()) -> Subscription:
    info = SubscriptionInfo(process_id=process, task_offset_sums=dict.fromkeys(running, -2))
    return Subscription(user_data=encode_subscription(info), owned_partitions=owned)


def _active(answer: GroupAssignment) -> Mapping[str, tuple[object, ...]]:
    return {name: decode_assignment(told.user_data).active_tasks for name, told in sorted(answer.members.items())}


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        (None, HighAvailabilityTaskAssignor),
        ("HighAvailabilityTaskAssignor", HighAvailabilityTaskAssignor),
        (INTERNALS + "HighAvailabilityTaskAssignor", HighAvailabilityTaskAssignor),
        ("StickyTaskAssignor", StickyTaskAssignor),
        (INTERNALS + "StickyTaskAssignor", StickyTaskAssignor),
        ("org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor", PublicStickyTaskAssignor),
        ("FallbackPriorTaskAssignor", FallbackPriorTaskAssignor),
        (INTERNALS + "FallbackPriorTaskAssignor", FallbackPriorTaskAssignor),
        ("balanced", BalancedTaskAssignor),
        ("shop_rules:OnTheLast", CheckedAssignor),
        ("shop_rules.OnTheLast", CheckedAssignor),
    ],
)
def test_the_setting_names_an_assignor(named: str | None, kind: type) -> None:
    config = StreamsConfig.of({"application.id": "a", "bootstrap.servers": "b:1", "task.assignor.class": named})
    assert type(choose_assignor(config.task_assignor_class).assignor) is kind


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("HighAvailability", "no assignor is named 'HighAvailability'; there are HighAvailabilityTaskAssignor, "),
        ("no_such_shop:Rules", r"module no_such_shop can't be imported \(ModuleNotFoundError: .*\); is it on the path\?"),
        ("shop_rules:Rules", "module shop_rules has no class Rules; it has OnTheLast"),
        ("shop_rules:On:TheLast", "expected package.module:Class"),
        ("org.apache.kafka.streams.MyAssignor", "no class of Kafka's of this name is known here"),
    ],
)
def test_a_name_that_is_no_assignor_stops_the_instance_before_it_joins(named: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"task.assignor.class.*{sentence}"):
        _leader(**{"task.assignor.class": named})


def test_a_module_that_fails_while_it_is_imported_is_a_sentence(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_rules.py").write_text("1 / 0\n")  # type: ignore[operator]
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"module broken_rules can.t be imported \(ZeroDivisionError: division by zero"):
        _leader(**{"task.assignor.class": "broken_rules:Rules"})


def test_an_instances_leader_asks_the_users_class_and_keeps_the_assignment_where_its_answer_is_invalid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader = _leader(**{"task.assignor.class": "shop_rules:OnTheLast"})
    first = leader.assign("a", {"in": 2}, {"a": _said(P1), "b": _said(P2)})
    tasks = (TaskId(0, 0), TaskId(0, 1))
    assert _active(first) == {"a": (), "b": tasks}
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR]

    owned = [TopicPartition("in", 0), TopicPartition("in", 1)]
    again = leader.assign("a", {"in": 2}, {"a": _said(P1), "b": _said(P2, *owned, running=tasks)})
    assert OnTheLast.calls == 2
    assert _active(again) == {"a": (), "b": tasks}
    (line,) = [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR]
    assert "The answer of shop_rules:OnTheLast is refused (task 0_0 is active on 2 clients" in line
    assert "the previous assignment is returned to clients" in line
