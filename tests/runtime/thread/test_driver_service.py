"""What the driver answers its workers before they commit."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from tidemill.kafka.group.metadata import Membership
from tidemill.runtime.thread.driver_service import DriverService


@pytest.mark.parametrize("confirmed_for_s", [5.0, 0.0])
@pytest.mark.parametrize("has_transactions", [True, False])
def test_without_transactions_a_member_that_may_have_been_replaced_commits_nothing(
    has_transactions: bool, confirmed_for_s: float
) -> None:
    """With transactions the broker fences it, and an outage of the group's coordinator alone costs nothing."""
    batch = SimpleNamespace(read=(), request=SimpleNamespace(batch_id=1, incarnation=0))
    runner: Any = SimpleNamespace(under_way=batch, begin_commit=lambda: None)
    group: Any = SimpleNamespace(
        membership=Membership(generation=1, member_id="m"),
        may_commit=lambda *_tasks, **_incarnation: True,
        confirmed_for_s=lambda: confirmed_for_s,
    )
    service = DriverService(runner, group, cast("Any", None), has_transactions=has_transactions)
    answer = service.membership()
    assert answer.may_commit is (has_transactions or confirmed_for_s > 0)
    assert answer.confirmed_for_s == (math.inf if has_transactions else confirmed_for_s)


@pytest.mark.parametrize(
    "ask",
    [
        lambda service: service.next_request(1),
        lambda service: service.reported(1, None),
        lambda service: service.wait_served(1, 7),
        lambda service: service.worker_joined(1, "step", None),
        lambda service: service.worker_left("step", None),
    ],
    ids=["next_request", "reported", "wait_served", "worker_joined", "worker_left"],
)
def test_a_worker_is_answered_whatever_the_thread_that_ends_does_with_its_engine(ask: Callable[[Any], object]) -> None:
    own = mock.Mock()

    class Ending:
        """Gives its engine up as soon as that was asked for."""

        left: Any = own

        @property
        def engine(self) -> Any:
            found, self.left = self.left, None
            return found

    service = DriverService(cast("Any", Ending()), cast("Any", None), cast("Any", None))
    ask(service)
    assert len(own.mock_calls) == 1
    ask(service)
    assert len(own.mock_calls) == 1
