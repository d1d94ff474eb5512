"""What a notebook shows of an instance: from the document that it serves, with names of others escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tidemill import KafkaStreams, Serdes, StreamsBuilder
from tidemill.runtime.observe.instance_html import instance_html

THREAD: dict[str, Any] = {
    "number": 1, "running": True, "error": None, "records_per_s": 12.5, "produced_per_s": 3.0, "latency_ms": 40.0, "dropped": 2,
    "active": [
        {"task": "0_0", "phase": "running", "lag": None, "seconds_left": None},
        {"task": "0_1", "phase": "restoring", "lag": 900, "seconds_left": 3.4},
    ],
    "standby": [{"task": "1_0", "lag": 0}, {"task": "1_1", "lag": 7}],
}  # fmt: skip
STATUS: dict[str, Any] = {
    "application": "app", "state": "RUNNING", "host": "localhost:8080", "error": None, "ready": True, "why": [],
    "threads": [THREAD],
}  # fmt: skip


def cells(html: str) -> list[str]:
    return ["".join(cell.itertext()) for cell in ElementTree.fromstring(f"<all>{html}</all>").iter("td")]


def text(html: str) -> str:
    return "".join(ElementTree.fromstring(f"<all>{html}</all>").itertext())


def test_each_thread_has_a_row_with_its_tasks() -> None:
    assert cells(instance_html(STATUS)) == [
        "1", "0_0, 0_1 (restoring, 900 records behind, 3 s left)", "1_0, 1_1 (7 records behind)", "12.5", "3.0", "40.0", "2",
    ]  # fmt: skip
    assert text(instance_html(STATUS)).startswith("app: RUNNING, answers at localhost:8080")


def test_the_page_of_the_group_is_linked() -> None:
    [link] = ElementTree.fromstring(f"<all>{instance_html(STATUS, 'https')}</all>").iter("a")
    assert (link.get("href"), link.text) == ("https://localhost:8080/", "localhost:8080")


def test_a_thread_that_has_ended_says_why() -> None:
    ended = THREAD | {"running": False, "error": "fenced", "active": [], "standby": [], "latency_ms": None}
    assert cells(instance_html(STATUS | {"threads": [ended]}))[:6] == ["1 (ended: fenced)", "none", "none", "12.5", "3.0", ""]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"error": "no broker"}, "no broker"),
        ({"ready": False, "why": ["thread 1: joining", "thread 2: stuck"]}, "thread 1: joining; thread 2: stuck"),
    ],
)
def test_what_is_wrong_is_reported(status: dict[str, Any], told: str) -> None:
    assert told in text(instance_html(STATUS | status))


def test_names_are_escaped() -> None:
    html = instance_html(STATUS | {"application": "<b>", "host": "<i>", "error": "<script>"})
    assert "<script>" not in html
    assert text(html).startswith("<b>: RUNNING, answers at <i><script>")


def test_an_instance_that_was_not_started_says_so() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.string()).to("out")
    streams = KafkaStreams(builder, {"application.id": "my-app", "bootstrap.servers": "nowhere:9092"})
    assert text(streams._repr_html_()) == "my-app: CREATED; start() starts it"
