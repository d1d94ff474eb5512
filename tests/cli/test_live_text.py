"""The status of a running command: one line on a terminal, however long its text is; nothing of it elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.live import Live

from tidemill.cli.live_text import LiveText


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
