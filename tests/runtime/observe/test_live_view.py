"""A cell's output that follows an instance: drawn again when something has changed, until the instance has ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import chain, repeat
from queue import Queue
from types import ModuleType
from typing import Any

import pytest

from tidemill import KafkaStreams, Serdes, StreamsBuilder
from tidemill.errors import StopError
from tidemill.runtime.observe.live_view import LiveView

LIMIT_S = 60.0


class Cell:
    """A notebook's output, and what IPython's display module is to a cell."""

    def __init__(self) -> None:
        self.shown: Queue[str] = Queue()

    def display(self, page: str, *, display_id: bool) -> Cell:
        assert display_id
        self.update(page)
        return self

    def update(self, page: str) -> None:
        self.shown.put(page)

    def next(self) -> str:
        return self.shown.get(timeout=LIMIT_S)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    found = Cell()
    display: Any = ModuleType("IPython.display")
    display.HTML, display.display = str, found.display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    yield found
    for thread in threading.enumerate():
        if thread.name == "tidemill-live-view":
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def test_it_is_drawn_again_when_it_has_changed_and_for_the_last_time_when_all_is_over(cell: Cell) -> None:
    now, over = ["first"], threading.Event()
    LiveView(lambda: now[0], over.is_set, 0.001)._ipython_display_()
    assert cell.next() == "first"
    now[0] = "second"
    while (shown := cell.next()) == "first":  # its thread had not looked yet
        pass
    assert shown == "second"
    now[0] = "last"
    over.set()
    assert cell.next() == "last"


def test_it_stops_when_it_is_told_to(cell: Cell) -> None:
    view = LiveView(lambda: "one", lambda: False, 0.001)
    view._ipython_display_()
    assert cell.next() == "one"
    view.stop()


def test_an_instance_that_is_being_closed_is_looked_at_again(cell: Cell) -> None:
    looks = chain(["at first", StopError("closing")], repeat("at last"))

    def html() -> str:
        found = next(looks)
        if isinstance(found, StopError):
            raise found
        return found

    view = LiveView(html, lambda: False, 0.001)
    view._ipython_display_()
    assert [cell.next(), cell.next()] == ["at first", "at last"]
    view.stop()


def test_an_instance_that_was_not_started_shows_itself() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.string()).to("out")
    streams = KafkaStreams(builder, {"application.id": "my-app", "bootstrap.servers": "nowhere:9092"})
    view = streams.live("counts")
    assert view._repr_html_() == streams._repr_html_()
    view.stop()


def test_it_ends_with_the_instance_though_that_can_not_be_shown_any_more(cell: Cell) -> None:
    over = threading.Event()

    def page() -> str:
        if over.is_set():
            raise StopError("closed")
        return "first"

    LiveView(page, over.is_set, 0.001)._ipython_display_()
    assert cell.next() == "first"
    over.set()  # the fixture waits for the thread
