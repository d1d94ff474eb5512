"""Joins by foreign key whose subscriptions and answers arrive late, in batches of any size: the last results are those that the
last rows of both tables make."""

from __future__ import annotations

import random

import pytest

from tests.operators.test_record_cache import ForeignKeyJoin
from tidemill.operators.task_graph import Produced


class DelayedJoin:
    """A join with what is on its way between its two sides: in order from each right partition and to it, one for each key."""

    def __init__(self, kind: str, chance: random.Random) -> None:
        self._join, self._chance = ForeignKeyJoin(kind), chance
        self._under_way: dict[tuple[str, object], list[Produced]] = {}
        self.rows: dict[str, dict[str, str | None]] = {"in": {}, "right": {}}

    @property
    def results(self) -> dict[str, str]:
        return {key: value for key, value in self._join.results.items() if value is not None}

    def step(self) -> None:
        what = self._chance.random()
        if what < 0.35:
            self._change("in", self._chance.choice("kl"), self._chance.choice("xyz") + self._chance.choice("123"))
        elif what < 0.5:
            key = self._chance.choice("xyz")
            self._change("right", key, f"r{self._chance.randrange(100)}", at=key)
        elif what < 0.85:
            self._arrive()
        else:
            self._send(self._join.end_batch(), None)

    def settle(self) -> None:
        self._send(self._join.end_batch(), None)
        while self._arrive():
            if not any(self._under_way.values()):
                self._send(self._join.end_batch(), None)

    def _change(self, topic: str, key: str, value: str, at: str | None = None) -> None:
        given = None if self._chance.random() < 0.35 else value
        self.rows[topic][key] = given
        self._join.change(topic, key, given)
        self._send(self._join.arrive(), at)

    def _arrive(self) -> bool:
        ways = [way for way, sent in self._under_way.items() if sent]
        if not ways:
            return False
        side, at = self._chance.choice(ways)
        self._send(self._join.arrive(self._under_way[side, at].pop(0)), at)
        return True

    def _send(self, sent: list[Produced], at: object) -> None:
        """``at``: the right row's key where it was sent by that side."""
        for one in sent:
            is_subscription = "REGISTRATION" in one.topic
            way = ("right", one.record.key) if is_subscription else ("left", at)
            self._under_way.setdefault(way, []).append(one)


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_the_last_results_are_those_of_the_last_rows(kind: str) -> None:
    for seed in range(400):
        run = DelayedJoin(kind, chance := random.Random(seed))
        for _ in range(chance.choice((10, 40, 80))):
            run.step()
        run.settle()
        rights = run.rows["right"]
        joined = {key: f"{left}+{rights.get(left[0])}" for key, left in run.rows["in"].items() if left is not None}
        is_left = kind == "left_join"
        assert run.results == {k: v for k, v in joined.items() if is_left or not v.endswith("+None")}, f"seed {seed}"
