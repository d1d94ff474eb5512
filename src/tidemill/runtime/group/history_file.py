"""The rebalances that an instance has led, kept over its restarts: a file in its state directory, one line of JSON for each.

Decides how many are kept (the last hundred), which lines count (complete ones; each must be a rebalance) and what happens to a
file that can't be read: it is renamed, the error is logged, and a new file begins. The contents of a line are
``rebalance_history``'s.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from tidemill.documents import Document
from tidemill.log_format import LogEvent
from tidemill.query.document_reader import UnreadableDocumentError, read_document
from tidemill.query.group_documents import RebalanceDocument
from tidemill.runtime.group.rebalance_history import KEPT, RebalanceHistory

log = logging.getLogger("tidemill.leader")

FILE = "rebalances.jsonl"
ASIDE = "rebalances.jsonl.unreadable"
_MOST_BYTES = 64 << 20
_CLOSE_LIMIT_S = 5.0


class HistoryFile:
    """The file of one instance's rebalances; the state directory's lock keeps it to one writer at a time."""

    def __init__(self, directory: Path) -> None:
        self._path, self._aside = directory / FILE, directory / ASIDE
        self._lines = 0

    def load(self) -> tuple[list[Document], str]:
        """The rebalances in the file, oldest first, or none and the reason why it can't be read; it is put aside then."""
        try:
            found, lines = _read(self._path)
        except (OSError, ValueError) as problem:
            why = f"{self._path} can't be read: {problem}. "
            try:
                self._path.replace(self._aside)
                why += f"It is put aside as {self._aside.name}, and a new one begins"
            except OSError as left:
                why += (
                    f"It could not be put aside ({left}), so no rebalances are kept over a restart: remove or rename "
                    f"{self._path.name} and {self._aside.name}, which must be files"
                )
            log.error(LogEvent("history-unreadable", problem=why))
            return [], why
        self._lines = lines
        return found, ""

    def append(self, led: Sequence[Document], kept: Sequence[Document]) -> None:
        """Adds ``led``; once in a while the file is written again with ``kept`` only. OSError if that can't be."""
        if self._lines + len(led) > 2 * KEPT:
            draft = self._path.with_suffix(".draft")
            draft.write_text("".join(map(_line, kept)), encoding="utf-8")
            draft.replace(self._path)
            self._lines = len(kept)
            return
        whole = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(map(_line, led)))
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._path, whole)  # half a line, with the next one behind it, would be no rebalance
            raise
        self._lines += len(led)


def _line(led: Document) -> str:
    return json.dumps(led, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def _read(path: Path) -> tuple[list[Document], int]:
    """The last ones, and how many lines there are. ValueError if a line is no rebalance; the last one may be cut short."""
    if not path.exists():
        return [], 0
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, expected at most {_MOST_BYTES:,}")
    whole, _, cut = path.read_bytes().rpartition(b"\n")
    if cut:
        os.truncate(path, size - len(cut))  # a crash while the file is written again would lose the other lines
    lines = whole.split(b"\n") if whole else []
    return [_rebalance(number, line) for number, line in enumerate(lines, 1)][-KEPT:], len(lines)


def _rebalance(number: int, line: bytes) -> Document:
    try:
        found: Document = json.loads(line)
        read_document(RebalanceDocument, found)
    except (UnreadableDocumentError, ValueError, RecursionError) as problem:
        raise ValueError(f"line {number} is no rebalance ({problem})") from None
    return found


class HistoryKeeper:
    """Writes the rebalances that the instance leads, on a thread of its own: the group waits for its leader meanwhile."""

    def __init__(self, history: RebalanceHistory, directory: Path) -> None:
        self._history, self._file = history, HistoryFile(directory)
        self._added, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-history", daemon=True)

    def start(self) -> None:
        """Reads the rebalances of earlier starts, then starts the thread."""
        self._history.remember(*self._file.load())
        self._history.on_added = self._added.set
        self._thread.start()

    def close(self) -> None:
        """Writes new rebalances, then ends the thread."""
        self._ends.set()
        self._added.set()
        self._thread.join(_CLOSE_LIMIT_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            self._added.wait()
            self._added.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        try:
            new, kept = self._history.unsaved()
            if new:
                self._file.append(new, kept)
                self._history.saved(kept)
        except Exception as problem:  # a full disk must not end the leader
            log.warning(LogEvent("history-not-kept", problem=repr(problem)))
