"""The session that the drivers of a process share, without a JVM: how it is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.testing import driver


def test_its_jvm_is_started_as_the_machine_starts_one_soonest_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    handle = SimpleNamespace(session="the session", close=lambda: None, is_alive=lambda: True)

    def machine_jvm(environ: Any, **options: Any) -> Any:
        started.append(options)
        return SimpleNamespace(session=lambda limit_s: handle)

    monkeypatch.setattr(driver, "SparkSession", SimpleNamespace(getActiveSession=lambda: None))
    monkeypatch.setattr(driver, "_started", driver._SharedSession())
    monkeypatch.setattr(driver, "machine_jvm", machine_jvm)
    assert [driver.shared_session() for _ in range(2)] == ["the session"] * 2
    assert [options["threads"] for options in started] == [1]
