"""The benchmark's text: lines of 8 words, Zipf(1.05) over 50,000 words, and how often each word is in them.

The same seed gives the same lines, so every system gets the same data. The counts come from numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WORDS_PER_LINE = 8
VOCABULARY = 50_000
EXPONENT = 1.05
PROBE_EVERY = 10
"""In a line with a probe the last word is one that no other line has: its count arrives once."""

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "st", "tr")
_VOWELS = ("a", "e", "i", "o", "u")
_SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfLines:
    """``draws``: the words of all lines, as numbers; one row a line. ``probes``: whether lines carry probes."""

    draws: npt.NDArray[np.int32]
    probes: bool = False

    def __len__(self) -> int:
        return len(self.draws)

    @property
    def words(self) -> int:
        return len(self.draws) * WORDS_PER_LINE

    def lines(self, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        end = len(self) if end is None else end
        for first in range(begin, end, _AT_ONCE):
            rows = _NAMES[self.draws[first : min(first + _AT_ONCE, end)]].tolist()
            for number, row in enumerate(rows, start=first):
                if self.probes and number % PROBE_EVERY == 0:
                    row[-1] = probe(number)
                yield " ".join(row).encode()

    def counts(self, end: int | None = None) -> dict[str, int]:
        """How often each word is in the first ``end`` lines."""
        drawn = self.draws[:end].copy()
        probes = range(0, len(drawn), PROBE_EVERY) if self.probes else range(0)
        drawn[list(probes), -1] = VOCABULARY
        found = np.bincount(drawn.ravel(), minlength=VOCABULARY)[:VOCABULARY]
        counts = {str(_NAMES[number]): int(found[number]) for number in np.flatnonzero(found)}
        return {**counts, **{probe(number): 1 for number in probes}}


def probe(line: int) -> str:
    return f"probe{line}"


def zipf_lines(lines: int, *, seed: int, probes: bool = False) -> ZipfLines:
    weights = np.arange(1, VOCABULARY + 1) ** -EXPONENT
    steps = np.cumsum(weights / weights.sum())
    uniform = np.random.default_rng(seed).random(lines * WORDS_PER_LINE)
    draws = np.minimum(np.searchsorted(steps, uniform), VOCABULARY - 1).astype(np.int32)
    return ZipfLines(draws=draws.reshape(lines, WORDS_PER_LINE), probes=probes)


def _name(number: int) -> str:
    """The commoner a word, the shorter: two syllables for the first 6,400, three for the others."""
    base = len(_SYLLABLES)
    name = _SYLLABLES[number % base] + _SYLLABLES[number // base % base]
    return name if number < base * base else name + _SYLLABLES[number // (base * base)]


_NAMES: npt.NDArray[np.str_] = np.array([_name(number) for number in range(VOCABULARY)], dtype=object)
