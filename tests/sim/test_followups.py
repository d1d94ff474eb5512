"""A custom assignor's follow-up deadline (KIP-924) in a simulated group: the client rebalances when it was asked to."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest

from tests.sim.sim_runs import run
from tidemill.assignment.model import ApplicationState, Assignment
from tidemill.assignment.sticky.assignor import StickyTaskAssignor

DEADLINE_MS = 100_000


class AsksOnce:
    """Of the clients that have not had their four active tasks yet, once there are three clients."""

    def assign(self, state: ApplicationState) -> Assignment:
        placed = StickyTaskAssignor().assign(state)
        three = len(state.clients) == 3
        new = [client.process_id for client in state.clients if three and len(client.previous_active) < 4]
        asked = {process_id: replace(placed.clients[process_id], followup_deadline_ms=DEADLINE_MS) for process_id in new}
        return replace(placed, clients={**placed.clients, **asked})


def test_the_group_rebalances_at_the_deadline_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("sim_assignors")
    module.AsksOnce = AsksOnce  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sim_assignors", module)
    result = run("article", assignor="sim_assignors:AsksOnce")
    due = [round_ for round_ in result.rounds if f"scheduled for {DEADLINE_MS} ms" in round_.cause]
    assert [DEADLINE_MS < round_.time_ms < DEADLINE_MS + 5_000 for round_ in due] == [True]
    before = [round_ for round_ in result.rounds if round_.time_ms < DEADLINE_MS]
    assert not before[-1].is_stable
    assert result.rounds[-1].is_stable
    assert result.violations == ()
