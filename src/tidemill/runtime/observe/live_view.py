"""``streams.live()``: the output of a notebook's cell, drawn again while the instance runs.

Decides when it is drawn again, and when no more. IPython is imported by who shows it, which only a notebook does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tidemill.errors import TidemillError


class LiveView:
    """Shows ``html()`` where a cell ends with it, and again every ``every_s`` until ``is_over()`` or ``stop()``."""

    def __init__(self, html: Callable[[], str], is_over: Callable[[], bool], every_s: float) -> None:
        self._html, self._is_over, self._every_s = html, is_over, every_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends the drawing: what is shown stays as it is."""
        self._stopped.set()

    def _repr_html_(self) -> str:
        return self._html()

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        shown = display(HTML(self._html()), display_id=True)
        threading.Thread(target=self._follow, args=(shown, HTML), name="tidemill-live-view", daemon=True).start()

    def _follow(self, shown: Any, page: Callable[[str], object]) -> None:
        before = ""
        while not self._stopped.wait(self._every_s):
            is_over = self._is_over()
            with contextlib.suppress(TidemillError):  # it is being closed
                if (now := self._html()) != before:
                    shown.update(page(now))
                    before = now
            if is_over:
                return
