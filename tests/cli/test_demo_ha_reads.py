"""Reads during a take-over: which count as failed, and what is said of them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tidemill.cli.demo_ha_reads import Reads
from tidemill.errors import RetriableError
from tidemill.query import http_forward


def after(monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> tuple[str, list[str]]:
    """What is said once all of these were given, and what was asked for."""
    asked: list[str] = []

    def fetch(host: Any, target: str, **options: Any) -> bytes:
        asked.append(target)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    monkeypatch.setattr(http_forward, "fetch", fetch)
    monkeypatch.setattr("tidemill.cli.demo_ha_reads._PAUSE_S", 0.001)
    reads = Reads("127.0.0.1:1", "counts-store", ["the", "a/b"])
    reads.start()
    deadline = time.monotonic() + 60
    while len(asked) < len(answers) and time.monotonic() < deadline:
        time.sleep(0.002)
    return reads.end(), asked


def test_words_are_asked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    said, asked = after(monkeypatch, [{"value": 3}] * 4)
    assert asked[:3] == ["/stores/counts-store/the", "/stores/counts-store/a%2Fb", "/stores/counts-store/the"]
    assert "none failed" in said


def test_no_answer_and_one_that_is_no_count_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = after(monkeypatch, [{"value": 3}, RetriableError("away"), {"value": None}, {"value": 4}])
    assert ", 2 failed," in said


def test_nothing_answered_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(monkeypatch, [RetriableError("away")])[0] == "no read was answered"
