"""Text from outside in messages: whatever it is, the message comes."""

from __future__ import annotations

import pytest

from tidemill.printable import LONGEST_TEXT, repr_of, said_by


class UnshownError(Exception):
    def __str__(self) -> str:
        raise ValueError("none of your business")

    __repr__ = __str__


def test_a_value_or_an_exception_that_can_not_be_shown_is_named_by_its_class() -> None:
    assert repr_of(UnshownError()) == "<UnshownError, whose __repr__ raised ValueError>"
    assert repr_of([UnshownError()]) == "<list, whose __repr__ raised ValueError>"
    assert said_by(UnshownError()) == "(no text: its __str__ raised ValueError)"


@pytest.mark.parametrize("shown", [repr_of, lambda value: said_by(ValueError(value))])
def test_a_long_one_is_cut_in_its_middle(shown: object) -> None:
    assert callable(shown)
    text = shown("x" * 3 * LONGEST_TEXT)
    assert len(text) < LONGEST_TEXT + 100
    assert "characters) ..." in text
    assert shown("short") in ("short", "'short'")
