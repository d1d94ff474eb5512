"""What the driver answers its workers before they commit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

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
