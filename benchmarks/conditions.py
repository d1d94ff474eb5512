"""What else the machine did during a measurement: a figure without it says little.

Decides how long to wait for a quiet machine before a measurement, which is a short while only: it is measured as it is, and
said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from process_watch import ProcessWatch, own_cpu_s

_SETTLE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """``load``: of the last minute, before. ``other_cores``: cores spent on neither system, broker nor benchmark, during."""

    load: float
    other_cores: float
    benchmark_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    load: float
    own_cpu_s: float
    at_s: float

    def during(self, watch: ProcessWatch, others: Sequence[ProcessWatch]) -> Conditions:
        now = time.time()
        own = own_cpu_s() - self.own_cpu_s
        known = watch.cpu_s_at(now) + sum(other.cpu_s_at(now) - other.cpu_s_at(watch.began_s) for other in others)
        return Conditions(
            load=self.load, other_cores=watch.others_cores(known + own), benchmark_cores=own / (now - self.at_s)
        )


def settled() -> Before:
    """After a pause in which what was just started or loaded comes to rest."""
    time.sleep(_SETTLE_S)
    return Before(load=os.getloadavg()[0], own_cpu_s=own_cpu_s(), at_s=time.time())
