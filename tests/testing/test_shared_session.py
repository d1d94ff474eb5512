"""The session that the drivers of a process share, without a JVM: how it is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.testing import sessions


def test_its_jvm_takes_spark_s_classes_from_the_archive_of_its_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[dict[str, Any]] = []

    def start_jvm(**options: Any) -> Any:
        started.append(options)
        return SimpleNamespace(session=lambda limit_s: SimpleNamespace(session="the session", close=lambda: None))

    monkeypatch.setattr(sessions, "SparkSession", SimpleNamespace(getActiveSession=lambda: None))
    monkeypatch.setattr(sessions, "_started", [])
    monkeypatch.setattr(sessions, "find_java", lambda environ: SimpleNamespace(path=Path("/a/java")))
    monkeypatch.setattr(sessions, "start_jvm", start_jvm)
    monkeypatch.setattr(sessions, "jvm_options", lambda java, cache: [f"-XX:SharedArchiveFile={cache}{java}"])
    monkeypatch.setenv("TIDEMILL_CACHE_DIR", str(tmp_path))
    assert sessions.shared_session() == "the session"
    assert started[0]["jvm_options"] == [f"-XX:SharedArchiveFile={tmp_path}/a/java"]
