"""Python's patterns as those of Java, which Spark's functions take: of texts, of times, and regular expressions.

Decides what has the same result there. Whatever has not, and what is no pattern at all, is None: no suggestion is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter

# --- texts -------------------------------------------------------------------------------------------------------------

_SHAPE = re.compile(
    r"(?P<align>[<>])?(?P<sign>[-+ ])?(?P<zeros>0)?(?P<width>\d+)?(?P<thousands>,)?(?P<precision>\.\d+)?(?P<kind>[dfes])?"
)
_PERCENT = re.compile(r"%(?P<flags>[-+ 0]*)(?P<width>\d*)(?P<precision>\.\d+)?(?P<kind>[dfesi])|(?P<itself>%%)|(?P<other>%)")
WHOLE = ("tinyint", "smallint", "int", "bigint")
"""Spark's types of whole numbers."""
_DOUBLE = ("float", "double")
NUMBERS = (*WHOLE, *_DOUBLE, "decimal")
_AS_THEY_ARE = ("string", *NUMBERS, "boolean", None)
"""Of others ``%s`` of Java's writes what Spark keeps within, such as the microseconds of a time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value becomes text; ``kind`` is the letter of the conversion, if there is one."""

    align: str | None = None
    sign: str | None = None
    zeros: bool = False
    width: str = ""
    thousands: str = ""
    precision: str = ""
    kind: str | None = None


def shape_of(text: str) -> Shape | None:
    """What stands behind the colon in ``f"{v:>10}"``."""
    found = _SHAPE.fullmatch(text)
    if found is None or (found["zeros"] and found["align"]):  # Python puts the zeros before the sign then
        return None
    return Shape(
        found["align"], found["sign"], found["zeros"] is not None, found["width"] or "", found["thousands"] or "",
        found["precision"] or "", found["kind"],
    )


def percents(text: str) -> list[tuple[str, Shape | None]] | None:
    """The pattern of ``"..." % values``: what is plain, and the shape of the value behind it."""
    parts: list[tuple[str, Shape | None]] = []
    end = 0
    for found in _PERCENT.finditer(text):
        plain, end = text[end : found.start()], found.end()
        if found["other"]:
            return None
        if found["itself"]:
            parts.append((f"{plain}%", None))
            continue
        flags, kind = found["flags"], "d" if found["kind"] == "i" else found["kind"]
        sign = "+" if "+" in flags else " " if " " in flags else None
        zeros = "0" in flags and "-" not in flags
        shape = Shape("<" if "-" in flags else ">", sign, zeros, found["width"], "", found["precision"] or "", kind)
        parts.append((plain, shape))
    return [*parts, (text[end:], None)]


def places(text: str) -> list[tuple[str, int | None, Shape | None]] | None:
    """The pattern of ``"...".format(values)``: what is plain, and the place and the shape of the value behind it."""
    parts: list[tuple[str, int | None, Shape | None]] = []
    for plain, name, shape, conversion in Formatter().parse(text):
        made = shape_of(shape or "")
        if name is None:
            parts.append((plain, None, None))
        elif conversion not in (None, "s") or made is None or not re.fullmatch(r"\d*", name):
            return None
        else:
            parts.append((plain, int(name) if name else sum(place is not None for _, place, _ in parts), made))
    return parts


def conversion(shape: Shape, spark_type: str | None) -> tuple[str, str | None] | None:
    """A shape as a conversion of ``F.format_string``, and the type that the value is cast to first, if it must be."""
    given = shape.kind or _kind(shape, spark_type)
    match given:
        case "s":
            if shape.sign or shape.zeros or shape.thousands or (shape.precision and spark_type not in ("string", None)):
                return None
            is_text = shape.kind == "s" or spark_type == "string"
            is_left = shape.align == "<" or (is_text and shape.align is None)
            cast = None if spark_type in _AS_THEY_ARE else "string"
        case "d":
            is_left, cast = shape.align == "<", None if spark_type in (*WHOLE, None) else "bigint"
        case "f" | "e":
            is_left, cast = shape.align == "<", None if spark_type in _DOUBLE else "double"
        case _:
            return None
    if (given == "d" and shape.precision) or (given == "e" and shape.thousands):
        return None
    flags = "-" * (is_left and bool(shape.width)) + (shape.sign or "").strip("-")
    flags += "0" * (shape.zeros and bool(shape.width)) + shape.thousands
    return f"%{flags}{shape.width}{shape.precision}{given}", cast


def _kind(shape: Shape, spark_type: str | None) -> str | None:
    """The letter that Python takes where there is none; None where that depends on a type that is not known."""
    if spark_type in WHOLE and shape != Shape():
        return "d"
    needs_type = shape.precision or (shape.width and shape.align is None)
    return None if spark_type != "string" and needs_type else "s"


# --- times -------------------------------------------------------------------------------------------------------------

_OF_TIMES = {
    "Y": "yyyy", "y": "yy", "m": "MM", "d": "dd", "H": "HH", "I": "hh", "M": "mm", "S": "ss", "f": "SSSSSS", "p": "a", "b": "MMM",
    "B": "MMMM", "z": "xx", "a": "EEE", "A": "EEEE", "j": "DDD",
}  # fmt: skip
_ONLY_WRITTEN = "aAj"
"""Spark reads no days of the week."""


def times(text: str, *, is_read: bool = False) -> str | None:
    """The pattern of ``strftime``, or of ``strptime``."""
    pattern = ""
    for letter, plain in re.findall(r"%(.?)|([^%]+)", text, re.DOTALL):
        if plain or letter == "%":
            said = plain or letter
            pattern += said if re.fullmatch(r"[-:/., ]+", said) else "'" + said.replace("'", "''") + "'"
        elif letter not in _OF_TIMES or (is_read and letter in _ONLY_WRITTEN):
            return None
        else:
            pattern += _OF_TIMES[letter]
    return pattern


# --- regular expressions -----------------------------------------------------------------------------------------------

_OF_GROUPS = re.compile(r"\\g<(?P<group>\w+)>|\\(?P<number>[1-9]\d?)|\\(?P<letter>.?)|(?P<dollar>\$)", re.DOTALL)
_LETTERS = {"\\": "\\\\", "n": "\n", "t": "\t", "r": "\r"}
_IN_PYTHON_ONLY = re.compile(r"\(\?\(|\[[^\]]*(?<!\\)(\[|&&)|\[\^?\]")
"""Conditions; brackets and ``&&`` among the characters of a class, which Java takes for classes."""


def regular(text: str) -> str | None:
    """A regular expression."""
    if _IN_PYTHON_ONLY.search(text) or re.search(r"\(\?P[<=]\w*_", text):  # no name of a group in Java has an underscore
        return None
    return re.sub(r"\(\?P=(\w+)\)", r"\\k<\1>", text.replace("(?P<", "(?<")).replace(r"\Z", r"\z")


def searched(text: str, how: str) -> str | None:
    """The pattern of ``re.match``, ``re.search`` or ``re.fullmatch`` as one that is looked for."""
    java = regular(text)
    if java is None or how == "search":
        return java
    return f"^(?:{java})" * ("|" in java) + f"^{java}" * ("|" not in java) + r"\z" * (how == "fullmatch")


def groups_of(text: str) -> int | None:
    """How many groups a regular expression has; None if it is none."""
    try:
        return re.compile(text).groups
    except (re.error, RecursionError):
        return None


def replacement(text: str) -> str | None:
    """What ``re.sub`` puts in."""
    parts = list(_replaced(text))
    return None if None in parts else "".join(part or "" for part in parts)


def _replaced(text: str) -> Iterator[str | None]:
    end = 0
    for found in _OF_GROUPS.finditer(text):
        yield text[end : found.start()]
        end = found.end()
        name = found["group"] or found["number"]
        if name is not None:
            yield f"${name}" if name.isdigit() else None if "_" in name else f"${{{name}}}"
        else:
            yield "\\$" if found["dollar"] else _LETTERS.get(found["letter"])
    yield text[end:]


# --- names of encodings ------------------------------------------------------------------------------------------------

_ENCODINGS = {
    "utf8": "UTF-8", "ascii": "US-ASCII", "usascii": "US-ASCII", "latin1": "ISO-8859-1", "iso88591": "ISO-8859-1",
    "utf16le": "UTF-16LE", "utf16be": "UTF-16BE",
}  # fmt: skip
"""By Python's names. UTF-16 without an order of bytes is written in another one by Java."""


def encoding(name: str) -> str | None:
    """The name of an encoding."""
    return _ENCODINGS.get(re.sub(r"[-_ ]", "", name.lower()))
