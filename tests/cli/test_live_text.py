"""The status of a running command: one line on a terminal, however long its text is; nothing of it elsewhere."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.live import Live

from tidemill.cli.live_text import LiveText, live_text
from tidemill.cli.progress import status_line


def test_a_status_line_is_asked_for_when_it_is_drawn_and_cut_at_the_width() -> None:
    screen = io.StringIO()
    said = ["joining the group, 1 s"]
    console = Console(file=screen, force_terminal=True, width=40, height=10, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        text = LiveText(live)
        text.status_line(lambda: said[-1])
        live.refresh()
        said.append("waiting for the group's rebalance, 12 s (imports 1.2 s, topics 0.3 s)")
        live.refresh()
        text.terminal_line("a line that stays")
    shown = screen.getvalue()
    assert "joining the group, 1 s" in shown
    assert "waiting for the group's rebalance, 12…" in shown
    assert "topics" not in shown, "it would need a second line"
    assert "a line that stays" in shown


def test_where_there_is_no_terminal_a_status_is_not_even_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = LiveText(None)
    text.status_line(lambda: pytest.fail("asked"))
    text.terminal_line("running after 3 s")
    text.plain_line("state=RUNNING")
    assert capsys.readouterr().out == "state=RUNNING\n"


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_move_its_cursor_is_told_as_a_pipe_is(
    term: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", term)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    with live_text() as text, status_line() as tell:
        text.status("waiting")
        text.plain_line("state=RUNNING")
        tell("fetching")
    assert capsys.readouterr() == ("state=RUNNING\n", "fetching\n")


class FullDisk(io.StringIO):
    """Standard output as a file on a disk that has no room, until it ``has_room``."""

    has_room = False

    def flush(self) -> None:
        if not self.has_room:
            raise OSError(28, "No space left on device")


def test_a_full_disk_under_the_output_ends_nothing_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    output, text = FullDisk(), LiveText(None)
    monkeypatch.setattr(sys, "stdout", output)
    text.line("CREATED -> REBALANCING")
    text.plain_line("state=RUNNING")
    assert [record.getMessage().count("output-not-written") for record in caplog.records] == [1]
    output.has_room = True
    text.line("RUNNING -> PENDING_SHUTDOWN")
    output.has_room = False
    text.line("PENDING_SHUTDOWN -> NOT_RUNNING")
    assert len(caplog.records) == 2, "it is another time"


def test_who_has_closed_the_pipe_wants_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        LiveText(None).line("state=RUNNING")
