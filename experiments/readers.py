"""Reads over HTTP while instances are restarted: asked of any instance in service, counted, and whether each was answered.

An instance is taken out of service before it is stopped and put back when it runs again, as a load balancer does in an orderly
restart. A failure is whatever is not the count of a word that is in the store: another status, a count that fell, no answer. With
``max_staleness_ms`` standbys must be that fresh, and no answer may be older than one before it, whoever gives it.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from commits import quantile
from instances import until

from tidemill import Position

_LIMIT_S = 60.0


@dataclass(slots=True)
class Readings:
    """``failures`` tells the first of them. ``stale``: answers of a copy that said how far it was behind."""

    requests: int = 0
    failed: int = 0
    stale: int = 0
    failures: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    @property
    def p99_ms(self) -> float:
        return quantile(self.took_s, 0.99) * 1e3

    @property
    def longest_ms(self) -> float:
        return max(self.took_s, default=0.0) * 1e3


class Readers:
    """``threads`` that each ask ``reads_per_s`` times a second for a word of a store; a context manager."""

    def __init__(
        self,
        store: str,
        words: Sequence[str],
        *,
        threads: int = 2,
        reads_per_s: float = 25.0,
        seed: int = 7,
        max_staleness_ms: int | None = None,
    ) -> None:
        self.readings = Readings()
        self._max_staleness_ms = max_staleness_ms
        self._seen = Position()
        self._store, self._words, self._pause_s, self._seed = store, list(words), 1 / reads_per_s, seed
        self._servers: list[str] = []
        self._asking: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(_LIMIT_S)

    def into_service(self, server: str) -> None:
        with self._lock:
            self._servers = [*self._servers, server]

    def out_of_service(self, server: str) -> None:
        """Returns when no question to it is open any more."""
        with self._lock:
            self._servers = [other for other in self._servers if other != server]
        until(lambda: not self._asking.get(server), f"the reads of {server} to be answered", _LIMIT_S, 0.01)

    def _run(self, number: int) -> None:
        draws = random.Random(self._seed + number)
        while not self._ends.wait(self._pause_s):
            word = draws.choice(self._words)
            with self._lock:
                if not self._servers:
                    continue
                server = draws.choice(self._servers)
                self._asking[server] = self._asking.get(server, 0) + 1
                least = self._least.get(word, 0)
            began = time.monotonic()
            try:
                problem, count, is_stale = self._ask(server, word, least)
            finally:
                with self._lock:
                    self._asking[server] -= 1
            self._note(f"{word} of {server}", problem, time.monotonic() - began)
            with self._lock:
                self.readings.stale += is_stale
                self._least[word] = max(count, self._least.get(word, 0))

    def _ask(self, server: str, word: str, least: int) -> tuple[str, int, bool]:
        """What is wrong with the answer, the count, and whether it is one of a copy that is behind."""
        host, _, port = server.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=_LIMIT_S)
        try:
            connection.request("GET", f"/stores/{self._store}/{word}{self._bounds()}")
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}", 0, False
        finally:
            connection.close()
        if answer.status != 200:
            return f"{answer.status} {found}", 0, False
        count, is_stale = int(found["value"]), bool(found.get("stale_by"))
        is_bounded = self._max_staleness_ms is not None
        if is_bounded:
            with self._lock:
                self._seen = self._seen.merged(Position.parse(found["position"]))
        is_fallen = count < least and (is_bounded or not is_stale)
        return (f"{count} after {least}: {found}" if is_fallen else ""), count, is_stale

    def _bounds(self) -> str:
        if self._max_staleness_ms is None:
            return ""
        with self._lock:
            seen = self._seen
        return f"?max_staleness_ms={self._max_staleness_ms}" + (f"&position={seen}" if seen.offsets else "")

    def _note(self, question: str, problem: str, took_s: float) -> None:
        with self._lock:
            self.readings.requests += 1
            self.readings.took_s.append(took_s)
            if problem:
                self.readings.failed += 1
                if len(self.readings.failures) < 5:
                    self.readings.failures.append(f"{question}: {problem}")
