"""What an experiment shows: a headline, steps with how long they took, tables, checks with a target beside what was reached.

Decides the exit code: 0 if every check that must hold does. A target that was missed is shown and doesn't fail the run unless it
is one of these: a busy machine misses a time, but never a count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

FAILED = 1
INTERRUPTED = 130
WIDTH = 118


class Report:
    """Prints as it goes; made once for an experiment."""

    def __init__(self, title: str) -> None:
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        self._has_failed = False
        self._began = time.monotonic()
        self.console.rule(f"[bold]{title}")

    @property
    def exit_code(self) -> int:
        return FAILED if self._has_failed else 0

    def headline(self, text: str) -> None:
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    @contextmanager
    def step(self, what: str) -> Iterator[Callable[[str], None]]:
        """What goes on, with a spinner on a terminal; a line with the seconds when it is done."""
        began = time.monotonic()
        with self.console.status(what) as status:
            yield lambda more: status.update(f"{what}: {more}")
        self.console.print(Text(f"  {what}: {time.monotonic() - began:.1f} s", style="dim"))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> None:
        """The first ``left`` columns are words, the others figures."""
        self.headline(title)
        table = Table()
        for number, column in enumerate(columns):
            table.add_column(column, justify="left" if number < left else "right")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self.console.print(table)

    def must(self, holds: bool, claim: str) -> None:
        """Something without which the experiment has failed."""
        self._has_failed |= not holds
        self._mark(holds, claim)

    def target(self, is_met: bool, claim: str) -> None:
        """Something that is aimed at."""
        self._mark(is_met, claim, missed="missed")

    def end(self) -> int:
        self.console.print(Text(f"\n{time.monotonic() - self._began:.0f} s in all", style="dim"))
        return self.exit_code

    def _mark(self, holds: bool, claim: str, missed: str = "FAILED") -> None:
        word, style = ("ok", "green") if holds else (missed, "yellow" if missed == "missed" else "bold red")
        self.console.print(Text.assemble((f"  {word:<7}", style), claim))


def run(experiment: Callable[[], int]) -> int:
    """The exit code of an experiment; what stops it is told in a sentence, and 130 stands for Ctrl-C."""
    from instances import ExperimentError

    from tidemill.errors import TidemillError

    try:
        return experiment()
    except (ExperimentError, TidemillError) as error:
        sys.stderr.write(f"the experiment could not go on: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing is left running\n")
        return INTERRUPTED
