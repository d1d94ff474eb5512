"""Inputs that stand before an open transaction: said after a minute, once a minute, and of no other input."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from tidemill.errors import RetriableError
from tidemill.ids import TopicPartition
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.runtime.thread.held_inputs import HELD_S, HeldInputs

ORDERS, ROWS = TopicPartition("orders", 0), TopicPartition("rows", 0)


class Held:
    """Two inputs with 100 records each, at a time that goes on when it is told to."""

    def __init__(self, stable: dict[TopicPartition, int] | None) -> None:
        self.stable, self.asked = stable, list[TopicPartition]()
        self.now_s = 1_000.0
        self.metrics = ThreadMetrics()
        self.metrics.high_watermarks = {ORDERS: 100, ROWS: 100}
        self.metrics.ends = {ORDERS: 40, ROWS: 100}
        anything: Any = self
        self.inputs = HeldInputs("t", self.metrics, anything, now_s=lambda: self.now_s)

    def stable_end_offsets(self, partitions: Collection[TopicPartition], *, timeout_s: float) -> dict[TopicPartition, int]:
        assert timeout_s <= 1
        self.asked += partitions
        if self.stable is None:
            raise RetriableError("away")
        return {tp: self.stable[tp] for tp in partitions}

    def look_for(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.inputs.look()
            self.now_s += 1


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "input-held-up" in record.getMessage()]


def test_an_input_before_an_open_transaction_is_said_once_a_minute_until_it_is_read_on(caplog: pytest.LogCaptureFixture) -> None:
    held = Held({ORDERS: 40})
    held.look_for(HELD_S)
    assert lines(caplog) == []
    held.look_for(HELD_S)
    assert [line.partition(" problem=")[0] for line in lines(caplog)] == [
        "event=input-held-up thread=t partition=orders-0 at=40 waiting=60 seconds=60"
    ]
    assert "a transaction that wrote there is still open" in lines(caplog)[0]
    held.look_for(HELD_S)
    assert len(lines(caplog)) == 2
    held.metrics.ends[ORDERS] = 50
    held.look_for(HELD_S)
    assert len(lines(caplog)) == 2
    assert set(held.asked) == {ORDERS}


def test_an_input_that_waits_for_something_else_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    held = Held({ORDERS: 41})
    held.look_for(3 * HELD_S)
    assert lines(caplog) == []
    assert held.asked == [ORDERS, ORDERS]


def test_inputs_that_are_read_on_ask_nobody(caplog: pytest.LogCaptureFixture) -> None:
    held = Held({})
    for _ in range(20):
        held.metrics.ends[ORDERS] += 1
        held.look_for(HELD_S / 2)
    assert held.asked == []


def test_brokers_that_do_not_answer_are_asked_again_a_minute_later(caplog: pytest.LogCaptureFixture) -> None:
    held = Held(None)
    held.look_for(3 * HELD_S)
    assert (lines(caplog), held.asked) == ([], [ORDERS, ORDERS])
