"""``tidemill`` with every micro-batch noted, one JSON line each, in the file that TIDEMILL_BATCH_TRACE names.

For finding where time goes: seconds as the stream thread sees them, records in and out, and the steps' own timings.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from tidemill.cli.main import main
from tidemill.runtime.observe.thread_metrics import ThreadMetrics


def trace(path: str) -> None:
    note = ThreadMetrics.batch

    def noted(self: ThreadMetrics, report: Any, seconds: float) -> None:
        note(self, report, seconds)
        line = {
            "at": time.time(), "thread": id(self), "seconds": seconds, "in": report.records_in, "out": report.records_out,
            "outcome": report.outcome.value, **report.timings_ms,
        }  # fmt: skip
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")

    ThreadMetrics.batch = noted  # type: ignore[method-assign]


if __name__ == "__main__":
    trace(os.environ["TIDEMILL_BATCH_TRACE"])
    sys.exit(main())
