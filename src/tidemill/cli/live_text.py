"""Text that a running command shows: lines that stay and, on a terminal, a status below them that is written over.

Decides how a terminal differs from a file or pipe: there the status is left out and ``plain_line`` says what it would have.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from tidemill.log_format import LogEvent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner

log = logging.getLogger("tidemill.cli")


class LiveText:
    """``console`` is None where no terminal is. Used by one thread."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._is_written = True
        self._spinner: Spinner | None = None
        self._line: _AskedLine | None = None

    @property
    def console(self) -> Console | None:
        return None if self._live is None else self._live.console

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._live is None:
            self._echo(text)
        else:
            self._live.console.print(text, highlight=False, markup=False)

    def terminal_line(self, text: str) -> None:
        """A line that stays, only on a terminal."""
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)

    def plain_line(self, text: str) -> None:
        """A line that stays, only where there is no terminal."""
        if self._live is None:
            self._echo(text)

    def _echo(self, text: str) -> None:
        """A full disk under a file of output ends no instance: lines are missing there, which the log says once. Who has closed
        a pipe (``| head``) wants the end."""
        try:
            typer.echo(text)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            if self._is_written:
                log.warning(LogEvent("output-not-written", error=error))
            self._is_written = False
        else:
            self._is_written = True

    def status(self, what: RenderableType) -> None:
        """Text on the terminal now; texts get a spinner before them."""
        if self._live is None:
            return
        if isinstance(what, str):
            what = self._spinning(what)
        self._live.update(what)

    def status_line(self, says: Callable[[], str]) -> None:
        """A status of one line that goes on while this thread does something else: ``says`` is called on another thread, some
        times a second."""
        if self._live is None:
            return
        if self._line is None or self._line.says is not says:
            self._line = _AskedLine(says)
        self._live.update(self._line)

    def _spinning(self, text: str) -> Spinner:
        from rich.spinner import Spinner
        from rich.text import Text

        if self._spinner is None:
            self._spinner = Spinner("dots")
        self._spinner.update(text=Text(text))
        return self._spinner


class _AskedLine:
    """A spinner and what ``says`` gives when it is drawn, cut at the terminal's width."""

    def __init__(self, says: Callable[[], str]) -> None:
        from rich.spinner import Spinner

        self.says, self._spinner = says, Spinner("dots")

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        self._spinner.update(text=Text(self.says()))
        line = self._spinner.render(console.get_time())
        if isinstance(line, Text):
            line.no_wrap, line.overflow = True, "ellipsis"
        yield line


def can_write_over(console: Console) -> bool:
    """False of a file, a pipe, and a terminal without cursor movements (``TERM=dumb``)."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def live_text() -> Iterator[LiveText]:
    """Standard output as this process has it: a terminal or not."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not can_write_over(console):
        yield LiveText(None)
        return
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        yield LiveText(live)
