"""Names that others chose, as they may stand in a log line, in a sentence or on a terminal.

Decides that a control character (a line feed, an escape sequence), a lone surrogate or an invisible one is written as an escape,
and that a name which is longer than any sensible one is cut: so no name forges a line or takes a terminal over.
"""

from __future__ import annotations

LONGEST = 250
"""Characters of a name before it is cut: more than a member id has, which is a client id and a UUID."""


def printable(name: object, *, longest: int = LONGEST) -> str:
    """The text of ``name`` in printable characters; unchanged if it is what one expects of a name."""
    text = str(name)
    if len(text) <= longest and text.isprintable():
        return text
    cut = text[:longest]
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in cut)
    return shown if len(text) <= longest else f"{shown}... ({len(text)} characters)"
