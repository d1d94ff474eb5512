"""Text that a running command shows: lines that stay and, on a terminal, a status below them that is written over.

Decides how a terminal differs from a file or pipe: there the status is left out and ``plain_line`` says what it would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner


class LiveText:
    """``console`` is None where no terminal is. Used by one thread."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._spinner: Spinner | None = None

    @property
    def console(self) -> Console | None:
        return None if self._live is None else self._live.console

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._live is None:
            typer.echo(text)
        else:
            self._live.console.print(text, highlight=False, markup=False)

    def plain_line(self, text: str) -> None:
        """A line that stays, only where there is no terminal."""
        if self._live is None:
            typer.echo(text)

    def status(self, what: RenderableType) -> None:
        """Text on the terminal now; texts get a spinner before them."""
        if self._live is None:
            return
        if isinstance(what, str):
            what = self._spinning(what)
        self._live.update(what)

    def _spinning(self, text: str) -> Spinner:
        from rich.spinner import Spinner
        from rich.text import Text

        if self._spinner is None:
            self._spinner = Spinner("dots")
        self._spinner.update(text=Text(text))
        return self._spinner


@contextmanager
def live_text() -> Iterator[LiveText]:
    """Standard output as this process has it: a terminal or not."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        yield LiveText(None)
        return
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        yield LiveText(live)
