"""Escapes for text from outside, so that it is safe in log lines, messages and terminals.

Control characters (a line feed, an escape sequence), lone surrogates and invisible characters are written as escapes, and a name
that is longer than any sensible one is cut. So no name forges a line or takes a terminal over.
"""

from __future__ import annotations

import re
import sys

LONGEST = 250
"""Characters of a name before it is cut: more than a member id has, which is a client id and a UUID."""
LONGEST_TEXT = 10_000
"""Characters of an exception's text, or of its traceback, before it is cut: it goes into errors, logs and dead letters."""
_OF_A_GROUP = 3
"""Exceptions of a group that a message has."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(name: object, *, longest: int = LONGEST) -> str:
    """The text of ``name`` in printable characters; unchanged if it is what one expects of a name."""
    text = str(name)
    if len(text) <= longest and text.isprintable():
        return text
    cut = text[:longest]
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in cut)
    return shown if len(text) <= longest else f"{shown}... ({len(text)} characters)"


def said_by(problem: BaseException) -> str:
    """The text of an exception of a user's, which may have none, or any length."""
    try:
        return shortened(f"{problem}{_of_group(problem)}")
    except Exception as failure:
        return f"(no text: its __str__ raised {type(failure).__name__})"


def _of_group(problem: BaseException) -> str:
    """What an exception group has, whose own text is only how many."""
    if sys.version_info < (3, 11) or not isinstance(problem, BaseExceptionGroup):  # noqa: F821  # ruff reads it as 3.10
        return ""
    first = "; ".join(f"{type(each).__name__}: {said_by(each)}" for each in problem.exceptions[:_OF_A_GROUP])
    return f": {first}; ..." if len(problem.exceptions) > _OF_A_GROUP else f": {first}"


def repr_of(value: object) -> str:
    """The repr of a value of a user's, which may have none, or any length."""
    try:
        return shortened(repr(value))
    except Exception as failure:
        return f"<{type(value).__name__}, whose __repr__ raised {type(failure).__name__}>"


def shortened(text: str) -> str:
    """The beginning and the end of a text that is longer than ``LONGEST_TEXT``."""
    half = LONGEST_TEXT // 2
    return text if len(text) <= LONGEST_TEXT else f"{text[:half]} ... ({len(text)} characters) ... {text[-half:]}"


def printable_lines(text: str) -> str:
    """A text of several lines, with what would act on a terminal written as an escape; line feeds and tabs stay."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
