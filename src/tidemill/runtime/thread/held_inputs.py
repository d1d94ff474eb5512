"""Warnings of inputs that are held up by an open transaction: without them, an operator sees nothing but a lag.

Decides when to look: at inputs that have more records, and have not been read on for a minute. Whether it is a transaction, the
brokers say: nothing behind the position is stable then. Only seen from the stream thread, between batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemill.errors import TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.log_format import LogEvent
from tidemill.runtime.observe.thread_metrics import ThreadMetrics, lags

log = logging.getLogger("tidemill.offsets")

HELD_S = 60.0
_LOOK_INTERVAL_S = 10.0
_ANSWER_LIMIT_S = 1.0


class HeldInputs:
    """A warning a minute for each input that is held up."""

    def __init__(self, thread: str, metrics: ThreadMetrics, admin: Admin, now_s: Callable[[], float] = time.monotonic) -> None:
        self._thread, self._metrics, self._admin, self._now_s = thread, metrics, admin, now_s
        self._look_at = 0.0
        self._stands: dict[TopicPartition, tuple[int, float]] = {}
        """Position and since when, of the inputs that have more records."""
        self._said_at: dict[TopicPartition, float] = {}

    def look(self) -> None:
        """Never raises. Sends no request while all inputs make progress."""
        now_s = self._now_s()
        if now_s < self._look_at:
            return
        self._look_at = now_s + _LOOK_INTERVAL_S
        behind = {tp: self._metrics.ends[tp] for tp, lag in lags(self._metrics).items() if lag}
        known = self._stands
        self._stands = {tp: known[tp] if tp in known and known[tp][0] == at else (at, now_s) for tp, at in behind.items()}
        self._said_at = {tp: at_s for tp, at_s in self._said_at.items() if self._stands.get(tp) == known.get(tp)}
        late = [tp for tp, (_, since_s) in self._stands.items() if now_s - self._said_at.get(tp, since_s) >= HELD_S]
        if late:
            self._said_at.update(dict.fromkeys(late, now_s))
            self._tell(late, now_s)

    def _tell(self, late: list[TopicPartition], now_s: float) -> None:
        try:
            stable = self._admin.stable_end_offsets(late, timeout_s=_ANSWER_LIMIT_S)
        except TidemillError as problem:  # told where they are needed
            log.debug(LogEvent("held-inputs-not-checked", thread=self._thread, problem=problem))
            return
        for tp in late:
            at, since_s = self._stands[tp]
            if stable[tp] <= at:
                log.warning(
                    LogEvent(
                        "input-held-up",
                        thread=self._thread,
                        partition=tp,
                        at=at,
                        waiting=self._metrics.high_watermarks[tp] - at,
                        seconds=round(now_s - since_s),
                        problem="a transaction that wrote there is still open, and nothing behind it may be read before it ends: "
                        "kafka-transactions.sh find-hanging shows it",
                    )
                )
