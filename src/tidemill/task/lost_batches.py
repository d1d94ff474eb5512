"""Lost batches in a row: when this is logged, and when a retry can't help.

Decides that what brokers, networks and processes cause is tried again for as long as it takes, and said at 5, 10, 20, 40 ...
losses, and that what does not fit together (``is_misfit``) is given up when the same has come ``MOST_MISFITS`` times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_MISFITS = 20
WORTH_SAYING = 5
"""Lost batches in a row after which the instance is not ready, and its log says what to check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostInARow:
    count: int = 0
    misfits: int = 0
    """The last of these that were misfits: their rows did not fit together."""
    reason: str = ""

    def and_another(self, reason: str, *, is_misfit: bool) -> LostInARow:
        return replace(self, count=self.count + 1, misfits=self.misfits + 1 if is_misfit else 0, reason=reason)

    @property
    def is_given_up(self) -> bool:
        return self.misfits >= MOST_MISFITS

    @property
    def is_lasting(self) -> bool:
        return self.count >= WORTH_SAYING

    @property
    def is_to_be_said(self) -> bool:
        """True after 5, 10, 20, 40 ... lost batches."""
        times, rest = divmod(self.count, WORTH_SAYING)
        return rest == 0 and times > 0 and times & (times - 1) == 0
