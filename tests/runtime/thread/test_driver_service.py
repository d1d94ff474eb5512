"""What the driver answers its workers before they commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemill.kafka.group.metadata import Membership
from tidemill.runtime.thread.driver_service import DriverService


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("has_transactions", [True, False])
def test_without_transactions_a_member_that_may_have_been_replaced_commits_nothing(
    has_transactions: bool, is_confirmed: bool
) -> None:
    """With transactions the broker fences it, and an outage of the group's coordinator alone costs nothing."""
    batch = SimpleNamespace(read=(), request=SimpleNamespace(batch_id=1, incarnation=0))
    runner: Any = SimpleNamespace(under_way=batch, begin_commit=lambda: None)
    group: Any = SimpleNamespace(
        membership=Membership(generation=1, member_id="m"),
        may_commit=lambda *_tasks, **_incarnation: True,
        is_confirmed=lambda: is_confirmed,
    )
    service = DriverService(runner, group, cast("Any", None), has_transactions=has_transactions)
    assert service.membership().may_commit is (has_transactions or is_confirmed)
