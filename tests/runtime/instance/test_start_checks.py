"""What is compared at a start with what an earlier version has left: with brokers that answer at once, and real local files."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill import JoinWindows, KafkaStreams, Serdes, StreamsBuilder, TimeWindows
from tidemill.config.slices import TopicsConfig
from tidemill.errors import ConfigError, MissingRightError, TopologyMismatchError
from tidemill.ids import TaskId
from tidemill.kafka.security.rights import Operation
from tidemill.membership.topology_metadata import TopologyMetadata, topology_metadata
from tidemill.runtime.instance import start_checks
from tidemill.runtime.instance.start_checks import (
    needed_operations,
    require_fitting_state,
    require_fitting_topics,
    require_topics,
)
from tidemill.state.directory import StateDirectory
from tidemill.state.lmdb import TaskState
from tidemill.state.meta import StateIdentity
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import Topology

STRING = Serdes.string()
CONFIG = TopicsConfig(application_id="app", bootstrap_servers="nowhere:1", dead_letter_topic=None)


class Brokers:
    """An admin client: topics with their partitions and cleanup policies."""

    def __init__(self, **topics: tuple[int, str]) -> None:
        self._topics = {name.replace("__", "-"): found for name, found in topics.items()}
        self.asked_configs: list[str] = []
        self.is_secretive = False

    def require_rights(self, _doing: str, _needs: object) -> None: ...

    def partitions(self, topics: Collection[str]) -> dict[str, int | None]:
        return {name: self._topics[name][0] if name in self._topics else None for name in topics}

    def topics(self) -> frozenset[str]:
        return frozenset(self._topics)

    def topic_configs(self, topic: str) -> dict[str, str]:
        self.asked_configs.append(topic)
        if self.is_secretive:
            raise MissingRightError("no DESCRIBE_CONFIGS")
        return {"cleanup.policy": self._topics[topic][1]}


def counting(store: str = "counts") -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by(lambda k, v: v).count(store=store)
    return builder.build()


def check(brokers: Brokers, topology: Topology | None = None) -> None:
    topology = topology or counting()
    admin: Any = brokers
    facts: TopologyMetadata = topology_metadata(topology, "app")
    require_fitting_topics("app", facts, require_topics(CONFIG, topology, admin), admin)


def test_global_topics_are_read_and_never_written() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", key=STRING, value=STRING)
    builder.stream("in", key=STRING, value=STRING).left_join(rates, lambda v, rate: v, selector=lambda k, v: v).to("out")
    read, written = frozenset({Operation.READ}), frozenset({Operation.WRITE})
    assert needed_operations(builder.build(), CONFIG) == {"in": read, "rates": read, "out": written}


def test_a_dead_letter_topic_that_the_program_reads_is_refused() -> None:
    config = replace(CONFIG, dead_letter_topic="in")
    admin: Any = Brokers(**{"in": (3, "delete")})
    with pytest.raises(ConfigError, match="which the program reads: a dead letter would come back"):
        require_topics(config, counting(), admin)


@pytest.mark.parametrize("topic", ["app-counts-repartition", "app-counts-changelog"])
def test_a_source_topic_that_is_an_internal_one_of_the_program_is_refused(topic: str) -> None:
    builder = StreamsBuilder()
    builder.stream(topic, key=STRING, value=STRING).to("out")
    builder.stream("in", key=STRING, value=STRING).group_by(lambda k, v: v).count(store="counts")
    admin: Any = Brokers(**{"in": (3, "delete")})
    with pytest.raises(ConfigError, match=f"reads {topic}, which is the name of an internal topic"):
        require_topics(CONFIG, builder.build(), admin)


def test_a_source_topic_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_checks, "HEARD_OF_LIMIT_S", 0.0)
    with pytest.raises(ConfigError, match=r"the topic in does not exist on nowhere:1: create it"):
        check(Brokers())


def test_the_topic_of_a_global_store_that_is_missing_is_named_before_a_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_checks, "HEARD_OF_LIMIT_S", 0.0)
    builder = StreamsBuilder()
    builder.global_table("rates", key=STRING, value=STRING)
    builder.stream("in", key=STRING, value=STRING).to("out")
    with pytest.raises(ConfigError, match=r"the topic rates does not exist on nowhere:1: create it"):
        check(Brokers(**{"in": (3, "delete")}), builder.build())
    check(Brokers(**{"in": (3, "delete"), "rates": (1, "compact")}), builder.build())


def test_a_source_topic_that_the_broker_hears_of_a_moment_later_is_waited_for() -> None:
    class Late(Brokers):
        asked = 0

        def partitions(self, topics: Collection[str]) -> dict[str, int | None]:
            self.asked += 1
            return super().partitions(topics) if self.asked > 2 else dict.fromkeys(topics)

    check(Late(**{"in": (3, "delete")}))


@pytest.mark.parametrize("partitions", [None, 3])
def test_joined_topics_with_different_numbers_of_partitions_are_named_with_both(partitions: int | None) -> None:
    """Also without a repartition topic, of another number than the program wants, for which Kafka Streams would not look."""
    builder = StreamsBuilder()
    left, right = (builder.stream(name, key=STRING, value=STRING) for name in ("in", "other"))
    left = left if partitions is None else left.repartition(name="parted", partitions=partitions)
    left.join(right, lambda one, two: one + two, JoinWindows.of_time_difference(1)).to("out")
    named = "in=3, other=6" if partitions is None else "app-parted-repartition=3, other=6"
    with pytest.raises(ConfigError, match=rf"not co-partitioned: {named}\. .*repartition\(\) its stream"):
        check(Brokers(**{"in": (3, "delete")}, other=(6, "delete")), builder.build())


def test_an_application_passes_that_has_never_run_or_has_not_changed() -> None:
    check(Brokers(**{"in": (2, "delete")}))
    there = Brokers(
        **{"in": (2, "delete")}, app__counts__changelog=(2, "compact"), app__counts__repartition=(2, "delete")
    )  # fmt: skip
    check(there)
    assert there.asked_configs == ["app-counts-changelog"]


def test_a_changelog_that_loses_rows_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check(Brokers(**{"in": (2, "delete")}, app__counts__changelog=(2, "compact,delete")))
    said = "event=changelog-expires topic=app-counts-changelog cleanup_policy=compact,delete expected=compact"
    assert said in caplog.text.replace("'", "")


def test_without_the_right_to_read_configs_they_are_not_compared() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=STRING, value=STRING).group_by_key()
    words.windowed_by(TimeWindows.of_size(1000)).count(store="counts")
    there = Brokers(**{"in": (2, "delete")}, app__counts__changelog=(2, "compact"))
    there.is_secretive = True
    check(there, builder.build())
    there.is_secretive = False
    with pytest.raises(TopologyMismatchError, match=r"cleanup\.policy=compact, expected compact,delete"):
        check(there, builder.build())


def test_a_misfit_is_reported_with_what_to_do_and_what_is_left_over_besides() -> None:
    there = Brokers(
        **{"in": (3, "delete")}, app__counts__changelog=(2, "compact"), app__old__changelog=(2, "compact"), other=(1, "delete")
    )  # fmt: skip
    with pytest.raises(TopologyMismatchError) as told:
        check(there)
    assert told.value.others == ("app-old-changelog",)
    assert "app-counts-changelog has 2 partitions, expected 3" in str(told.value)
    assert str(told.value).endswith("tidemill reset APP.py --execute --local-state --earlier-topics")


def test_topics_that_nobody_uses_any_more_are_only_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(Brokers(**{"in": (2, "delete")}, app__old__changelog=(2, "compact")))
    assert [line for line in caplog.messages if "topics-left-over" in line and "app-old-changelog" in line]


def store(subtopology: int, value: Any) -> StoreSpec:
    return StoreSpec(
        name="counts", tag=1, subtopology=subtopology, changelog="app-counts-changelog", timestamped=True, persistent=True,
        logged=True, key_serde=STRING, value_serde=value,
    )  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path) -> StateDirectory:
    """The state of a count by text, by task 1_0, and a directory that nobody can read."""
    directory = StateDirectory(tmp_path, "app")
    forms = {"counts": "timestamped_key_value key=string value=long"}
    TaskState.open(directory.task_path(TaskId(1, 0)), ["counts"], forms=forms).close(clean=True)
    directory.task_path(TaskId(1, 1)).mkdir()
    return directory


def test_a_store_that_is_what_it_was_passes_and_so_does_an_empty_machine(kept: StateDirectory, tmp_path: Path) -> None:
    require_fitting_state("app", kept, [store(1, Serdes.long())])
    require_fitting_state("app", StateDirectory(tmp_path, "none"), [store(1, Serdes.long())])


def test_a_store_with_another_serde_is_reported_with_both(kept: StateDirectory) -> None:
    with pytest.raises(TopologyMismatchError, match=r"counts is kept as \(.*value=long\) and is to be \(.*value=string\)"):
        require_fitting_state("app", kept, [store(1, STRING)])


def test_the_state_of_another_application_says_nothing_of_this_one(kept: StateDirectory) -> None:
    """Its next owner wipes it: a directory was copied to the wrong place."""
    whose = StateIdentity(application_id="other", task=TaskId(1, 2))
    forms = {"counts": "timestamped_key_value key=string value=string"}
    TaskState.open(kept.task_path(whose.task), ["counts"], whose=whose, forms=forms).close(clean=True)
    require_fitting_state("app", kept, [store(1, Serdes.long())])


def test_a_store_that_has_moved_to_another_subtopology_is_only_said(
    kept: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        require_fitting_state("app", kept, [store(2, Serdes.long())])
    assert [line for line in caplog.messages if "event=state-moved task=1_0 store=counts" in line]


@pytest.mark.parametrize("name", ["consumer.auto.offset.reset", "producer.acks", "admin.linger.ms"])
def test_a_setting_that_a_client_does_not_take_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    config = {"application.id": "app", "bootstrap.servers": "127.0.0.1:9", "state.dir": state, name: "1"}
    with pytest.raises(ConfigError, match=name):
        KafkaStreams(counting(), config).start()
    assert not state.exists()
