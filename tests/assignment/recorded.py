"""How much is tried: all with TIDEMILL_ALL_VECTORS=1 (`make vectors`), else a sample.

Of recorded answers of Kafka's own classes every few lines, of drawn examples a third.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors"
IS_ALL = os.environ.get("TIDEMILL_ALL_VECTORS") == "1"


def examples(most: int) -> int:
    """So many drawn examples, or a third of them."""
    return most if IS_ALL else max(most // 3, 20)


def recorded(name: str, *, every: int = 1) -> list[dict[str, Any]]:
    """The lines of a vector file, ``every`` so many of them unless all are asked for."""
    step = 1 if IS_ALL else every
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for at, line in enumerate(file) if at % step == 0]
    assert lines, f"{name} has no line: a test over it would assert nothing"
    return lines
