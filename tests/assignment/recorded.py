"""Recorded answers of Kafka's own classes: all lines with TIDEMILL_ALL_VECTORS=1, else every few lines."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors"


def recorded(name: str, *, every: int = 1) -> list[dict[str, Any]]:
    """The lines of a vector file, ``every`` so many of them unless all are asked for."""
    step = 1 if os.environ.get("TIDEMILL_ALL_VECTORS") == "1" else every
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for at, line in enumerate(file) if at % step == 0]
