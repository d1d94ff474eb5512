"""Text from outside in messages: whatever it is, the message comes."""

from __future__ import annotations

import sys

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


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are of Python 3.11")
def test_an_exception_group_says_what_it_has() -> None:
    inner = ExceptionGroup("inner", [KeyError("b")])  # noqa: F821
    several = ExceptionGroup("several", [ValueError("a"), inner, UnshownError(), ValueError("last")])  # noqa: F821
    said = said_by(several)
    assert said.startswith("several (4 sub-exceptions): ValueError: a; ExceptionGroup: inner (1 sub-exception): KeyError: 'b'; ")
    assert said.endswith("UnshownError: (no text: its __str__ raised ValueError); ...")
