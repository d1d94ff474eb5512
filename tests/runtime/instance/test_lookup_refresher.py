"""Static sides are read again when they are due, and a failed refresh leaves them as they are."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tidemill.runtime.instance.lookup_refresher import LookupRefresher
from tidemill.topology.spark_operations import DataFrameJoin


@dataclass
class Sides:
    joins: dict[str, DataFrameJoin]
    fails: int = 0
    asked: list[tuple[str, ...]] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def refresh(self, names: tuple[str, ...]) -> None:
        self.asked.append(names)
        if len(self.asked) == 3:
            self.enough.set()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the table is away")


def test_only_what_is_due_is_read_and_a_failure_does_not_end_it() -> None:
    often, never = (DataFrameJoin(frame=None, on=("id",), refresh_ms=ms) for ms in (1, None))
    sides: Any = Sides({"often": often, "never": never}, fails=1)
    refresher = LookupRefresher(sides)
    refresher.start()
    assert sides.enough.wait(30)
    refresher.close()
    assert set(sides.asked) == {("often",)}


def test_without_an_interval_nothing_runs() -> None:
    sides: Any = Sides({"never": DataFrameJoin(frame=None, on=("id",))})
    refresher = LookupRefresher(sides)
    refresher.start()
    assert not refresher._thread.is_alive()
    refresher.close()


def test_a_function_that_closes_its_instance_while_it_is_read_does_not_wait_for_itself() -> None:
    closed = threading.Event()
    sides: Any = Sides({"often": DataFrameJoin(frame=None, on=("id",), refresh_ms=1)})
    refresher = LookupRefresher(sides)

    def refresh(names: tuple[str, ...]) -> None:
        refresher.close()
        closed.set()

    sides.refresh = refresh
    refresher.start()
    assert closed.wait(30)
    refresher.close()
    assert not refresher._thread.is_alive()
