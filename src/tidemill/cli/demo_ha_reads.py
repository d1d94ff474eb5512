"""Reads of the state while an instance is away: what a user of the application notices of it.

Decides what is asked (the commonest words in turn, so every partition now and then) and what counts as failed: no answer, or
one that is no count. Whether the owner or a standby answers is the instance's affair.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import cycle
from urllib.parse import quote

from tidemill.errors import RetriableError

_PAUSE_S = 0.1
_LIMIT_S = 12.0


class Reads:
    """Asks one instance from ``start`` to ``end``, on a thread of its own."""

    def __init__(self, address: str, store: str, words: Sequence[str]) -> None:
        self._address, self._store, self._words = address, store, words
        self._is_over = threading.Event()
        self._took_s: list[float] = []
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="reads", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> str:
        """Result, in words."""
        self._is_over.set()
        self._thread.join(_LIMIT_S)
        if not self._took_s:
            return "no read was answered"
        failed = f"{self._failed} failed" if self._failed else "none failed"
        return f"{len(self._took_s)} reads of the counts meanwhile, {failed}, the slowest took {max(self._took_s):.1f} s"

    def _run(self) -> None:
        from tidemill.membership.wire import host_of
        from tidemill.query.http_forward import document, fetch

        host = host_of(self._address)
        assert host is not None
        for word in cycle(self._words):
            if self._is_over.is_set():
                return
            began = time.monotonic()
            try:
                answer = document(fetch(host, f"/stores/{self._store}/{quote(word, safe='')}", token="", timeout_s=_LIMIT_S))
                self._failed += not isinstance(answer.get("value"), int)
                self._took_s.append(time.monotonic() - began)
            except RetriableError:
                self._failed += 1
            self._is_over.wait(_PAUSE_S)
