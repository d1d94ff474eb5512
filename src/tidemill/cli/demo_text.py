"""The demo's text and what is in it, counted without Tidemill, and how two counts differ.

Decides what a word is: what Java's ``\\W`` (of ASCII, unlike Python's) leaves between it, in lower case, as the
application of the demo has it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

_NOT_A_WORD = re.compile(r"[^a-zA-Z_0-9]+")
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Lines, and the number of times that each word is in them."""

    lines: tuple[str, ...]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Text:
        kept = tuple(lines)
        return cls(lines=kept, counts=Counter(word for line in kept for word in words(line)))

    @property
    def words(self) -> int:
        return sum(self.counts.values())

    @property
    def summary(self) -> str:
        return f"{len(self.lines)} lines, {self.words} words, {len(self.counts)} distinct"


def english(most: int | None = None) -> Text:
    """Python's own reference texts, the first ``most`` lines of them."""
    from pydoc_data import topics

    return Text.of(islice((line for text in topics.topics.values() for line in text.splitlines()), most))


def words(line: str) -> Sequence[str]:
    return [word for word in _NOT_A_WORD.split(line.lower()) if word]


def differences(expected: Mapping[str, int], found: Mapping[str, int]) -> str:
    """One sentence on the counts that differ; empty if none does."""
    wrong = sorted(word for word in expected.keys() | found.keys() if expected.get(word) != found.get(word))
    if not wrong:
        return ""
    shown = "; ".join(f"{word!r} is there {expected.get(word, 0)} times, counted {found.get(word, 0)}" for word in wrong[:_SHOWN])
    rest = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return f"{len(wrong)} counts differ: {shown}{rest}"
