"""Where a thread's batches run: it stays, moves when its executor is gone, and goes where there is room."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.spark import placement
from tidemill.spark.launch import cluster_settings as launch_settings
from tidemill.spark.launch.cluster_settings import check_cluster_settings, cluster_settings, driver_host, java_home
from tidemill.spark.placement import Executor, OnExecutors, SlotShare, choose, is_cluster, room


def executors(*slots: int, first: int = 0) -> list[Executor]:
    return [Executor(name=str(number), host="h", slots=count) for number, count in enumerate(slots, start=first)]


def test_threads_are_spread_over_executors_the_oldest_first() -> None:
    placed: dict[str, str] = {}
    for thread in ("t1", "t2", "t3"):
        chosen = choose(thread, executors(2, 2), placed)
        assert chosen is not None
        placed[thread] = chosen
    assert placed == {"t1": "0", "t2": "1", "t3": "0"}


def test_a_thread_stays_on_its_executor_where_it_has_a_slot_however_much_room_others_have() -> None:
    assert choose("t1", executors(2, 8), {"t1": "0", "t2": "0"}) == "0"


def test_a_thread_that_shares_a_slot_stays_only_until_another_executor_has_one_to_spare() -> None:
    placed = {"t1": "0", "t2": "0"}
    assert choose("t1", executors(1), placed) == "0"
    assert choose("t1", executors(1, 1), placed) == "1"
    assert choose("t2", executors(1, 1), {"t1": "1", "t2": "0"}) == "0"


def test_a_thread_whose_executor_is_gone_takes_the_one_with_most_room() -> None:
    assert choose("t1", executors(1, 1, first=1), {"t1": "0", "t2": "1"}) == "2"


def test_without_a_slot_to_spare_threads_share_and_without_an_executor_there_is_no_place() -> None:
    placed = {"t1": "0", "t2": "1"}
    assert choose("t1", executors(1, first=1), placed) == "1"
    assert room(executors(1, first=1), {"t1": "1", "t2": "1"}) == {"1": -1}
    assert choose("t1", [], placed) is None


def test_the_ninth_executor_is_older_than_the_tenth() -> None:
    assert choose("t", executors(1, 1, first=9), {}) == "9"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 12))
def test_no_executor_is_shared_while_another_has_a_slot(slots: list[int], threads: int) -> None:
    placed: dict[str, str] = {}
    for number in range(threads):
        chosen = choose(f"t{number}", executors(*slots), placed)
        assert chosen is not None
        placed[f"t{number}"] = chosen
    left = room(executors(*slots), placed).values()
    assert min(left) >= 0 or max(left) <= 0


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", False), ("local[4]", False), ("local[*]", False), ("local[2,1]", False), ("", False)]
    + [(m, True) for m in ("local-cluster[2,1,1024]", "spark://h:7077", "yarn", "k8s://https://h:6443")],
)
def test_what_a_cluster_is(master: str, expected: bool) -> None:
    assert is_cluster(master) is expected


def test_the_local_master_gets_no_setting_of_a_cluster() -> None:
    assert cluster_settings("local[3]", {"spark.dynamicAllocation.enabled": "true"}) == {}


def test_executors_on_this_machine_reach_the_driver_by_loopback_others_by_the_address_that_leads_there() -> None:
    assert driver_host("local-cluster[2,1,1024]", {}) == "127.0.0.1"
    assert driver_host("spark://127.0.0.1:7077", {}) == "127.0.0.1"
    assert driver_host("spark://[::1]:7077,other:7077", {}) == "127.0.0.1"
    assert driver_host("yarn", {"spark.driver.host": "10.0.0.5"}) == "10.0.0.5"


def test_a_master_that_has_no_address_needs_the_drivers() -> None:
    with pytest.raises(ConfigError, match=r"spark.master is yarn.*set spark.driver.host"):
        cluster_settings("yarn", {})


@pytest.mark.parametrize("name", [f"spark.{end}.enabled" for end in ("dynamicAllocation", "decommission", "excludeOnFailure")])
def test_what_can_not_hold_on_executors_is_refused(name: str) -> None:
    check_cluster_settings({name: "false"})
    with pytest.raises(ConfigError, match=f"{name} is true, but .*: remove the setting"):
        cluster_settings("spark://127.0.0.1:7077", {name: "true"})


def test_a_java_that_does_not_answer_is_an_error_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "java"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    monkeypatch.setattr(launch_settings, "_ASK_LIMIT_S", 0.1)

    with pytest.raises(EnvironmentProblem, match=r"/java --list-modules` has not answered within 0.1 s"):
        java_home(silent, tmp_path)


def test_a_setting_of_the_user_stays() -> None:
    assert "spark.locality.wait" not in cluster_settings("local-cluster[2,1,1024]", {"spark.locality.wait": "1s"})


class Cluster(OnExecutors):
    """With executors as the test says, and no Spark."""

    def __init__(self, *found: Executor) -> None:
        self.found = list(found)
        super().__init__(None, 1)  # type: ignore[arg-type]

    def executors(self) -> list[Executor]:
        return self.found

    def _prefer(self, thread: str, location: str) -> None:
        self.preferred = {**getattr(self, "preferred", {}), thread: location}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SETTLE_LIMIT_S", "_GONE_LIMIT_S", "_POLL_S"):
        monkeypatch.setattr(placement, name, 0.01)


@pytest.mark.usefixtures("hurried")
def test_a_thread_that_was_removed_takes_no_slot_from_one_whose_executor_is_gone() -> None:
    cluster = Cluster(*executors(1, 1))
    assert [cluster.settle(thread) for thread in ("t1", "t2")] == [True, True]
    cluster.leave("t2")
    cluster.found = executors(1, first=1)
    assert cluster.settle("t1")
    assert cluster.is_settled("t1")


@pytest.mark.usefixtures("hurried")
def test_a_thread_whose_executor_is_gone_waits_for_a_slot_of_its_own_then_shares_then_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(*executors(1, 1))
    assert [cluster.settle(thread) for thread in ("t1", "t2")] == [True, True]
    assert cluster.preferred == {"t1": "executor_h_0", "t2": "executor_h_1"}
    assert not cluster.is_gone("t1")
    cluster.found = executors(1, first=1)
    assert cluster.is_gone("t1")
    assert not cluster.settle("t1")
    monkeypatch.setattr(placement, "_REPLACEMENT_LIMIT_S", 0.0)
    assert cluster.settle("t1")
    assert not cluster.is_settled("t1")
    assert cluster.preferred["t1"] == "executor_h_1"
    cluster.found = executors(1, 1, first=1)
    assert cluster.settle("t2")
    assert cluster.preferred == {"t1": "executor_h_1", "t2": "executor_h_2"}
    assert cluster.is_settled("t1")
    assert cluster.is_settled("t2")


def test_a_thread_and_the_starter_of_its_workers_look_for_its_place_at_the_same_time() -> None:
    class Beside(Cluster):
        is_first = True

        def _found_place(self, thread: str, *, may_share: bool) -> bool:
            if self.is_first:
                self.is_first = False
                assert self.settle(thread)
            return super()._found_place(thread, may_share=may_share)

    cluster = Beside(*executors(1))
    assert cluster.settle("t1")
    assert cluster.is_settled("t1")


@pytest.mark.usefixtures("hurried")
def test_without_any_executor_a_thread_has_no_place_and_a_start_says_what_is_missing() -> None:
    cluster = Cluster(*executors(1))
    cluster.found = []
    assert not cluster.settle("t1")
    assert not cluster.is_settled("t1")
    cluster._session = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://h:7077"))  # type: ignore[assignment]
    with pytest.raises(EnvironmentProblem, match="need 2 task slots, but the executors of spark://h:7077 have 0"):
        cluster._wait_for_slots(2, 0.0)


def in_session(application: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(applicationId=application))


def test_who_comes_later_finds_the_threads_of_those_before_and_of_no_other_session() -> None:
    threads = [1]
    first = SlotShare(in_session("app-1"), lambda: threads[0])
    elsewhere = SlotShare(in_session("app-2"), lambda: 7)
    second = SlotShare(in_session("app-1"), lambda: 2)
    assert (first.taken_before, elsewhere.taken_before, second.taken_before) == (0, 0, 1)
    threads[0] = 3
    assert (first.taken_by_others(), second.taken_by_others()) == (2, 3)
    first.give_back()
    assert second.taken_by_others() == 0
    second.give_back()
    elsewhere.give_back()
