"""What is suggested in place of Python's code gives, as an expression of Spark, what Python's code gives for the same values."""

# What stands here is wrong for Columns: that is what it is for.
# ruff: noqa: UP031
from __future__ import annotations

import base64
import copy
import math
import re
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tidemill import Serdes, StreamsBuilder
from tidemill.errors import ColumnMistakeError

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not know which call of a function it is in")

SCHEMA = (
    "s string, t string, i bigint, n int, d double, c decimal(12,2), a array<bigint>, w array<string>, m map<string,bigint>, "
    "b binary, ts timestamp, dt date, yes boolean"
)
TEXTS = ["Abc d", "", " x\t\n", "a1", "12", "äß", "a,b,,c", "a|b", "x\r\ny\n", "%d $1 \\1", "abab", "a\n", "2024-03-31"]
AT = datetime(2024, 3, 31, 12, 5, 9, 123456, timezone.utc)
ROWS = [
    {
        "s": text, "t": TEXTS[(at * 5 + 1) % len(TEXTS)], "i": [0, 7, -7, 65, 10**12, 255][at % 6], "n": [3, 0, -2][at % 3],
        "d": [0.0, 1.5, -2.5, 1234567.25][at % 4], "c": Decimal(["1.50", "-2.25", "100.00"][at % 3]),
        "a": [[3, 1, 2, 2], [], [5]][at % 3], "w": [["b", "x"], [], ["x"]][at % 3], "m": [{"a": 1, "b": 2}, {}][at % 2],
        "b": text.encode(), "ts": AT, "dt": AT.date(), "yes": at % 2 == 0,
    }
    for at, text in enumerate(TEXTS)
]  # fmt: skip

CASES: list[Callable[[Any], Any]] = [
    # texts with values
    lambda v: "%.1f" % v["i"], lambda v: "%6.2f|" % v["d"], lambda v: "%d" % v["d"], lambda v: "%i%%" % v["i"],
    lambda v: "%05d|%-6d|%+d" % (v["i"], v["i"], v["i"]), lambda v: "%8s|%-8s|" % (v["s"], v["t"]), lambda v: "%.1f" % v["n"],
    lambda v: f"{v['i']:>10}", lambda v: f"{v['i']:10}|", lambda v: f"{v['i']:<10}|", lambda v: f"{v['s']:10}|",
    lambda v: f"{v['s']:>10}|", lambda v: f"{v['s']:<10}|", lambda v: f"{v['s']:.2}", lambda v: f"{v['i']:,}",
    lambda v: f"{v['i']:05d}", lambda v: f"{v['i']:+}", lambda v: f"{v['d']:,.2f}", lambda v: f"{v['d']:<12.2f}|",
    lambda v: f"{v['d']:e}", lambda v: f"{v['c']:8.2f}", lambda v: f"{v['c']}", lambda v: f"{v['n']:.2f}", lambda v: f"{v['dt']}",
    lambda v: f"{v['ts']:%Y/%m/%d %H:%M:%S.%f}", lambda v: f"100% {v['s'].strip()}: {len(v['s']):3d}", lambda v: f"{v['s']!s}",
    lambda v: "{1} {0:5d} {1:>6}".format(v["i"], v["s"]), lambda v: "{:.1f}{{}}".format(v["i"]), lambda v: format(v["i"], "06d"),
    lambda v: v["s"] + str(v["i"]), lambda v: "a" + v["s"][1:] + v["t"],
    # regular expressions
    lambda v: re.sub(r"(a)(b)", r"\2-\1", v["s"]), lambda v: re.sub(r"(?P<one>a)", r"<\g<one>>", v["s"]),
    lambda v: re.sub("a", "$1", v["s"]), lambda v: re.sub(r"(a)", r"\g<1>0", v["s"]), lambda v: re.sub("a", r"\n\\", v["s"]),
    lambda v: re.sub(r"[,|]", "", v["s"]), lambda v: re.split(r"[,|]", v["s"]), lambda v: re.findall("[a-z]", v["s"]),
    lambda v: re.findall("(a)b", v["s"]), lambda v: re.search("b", v["s"]) is not None, lambda v: re.match("a|x", v["s"]) is None,
    lambda v: re.fullmatch("a|a1", v["s"]) is not None, lambda v: re.fullmatch("a", v["s"]) is None,
    lambda v: re.search("(a)(.)", v["s"]).group(2), lambda v: re.match("(a)", v["s"])[1],
    lambda v: re.search("[0-9]+", v["s"]).group(),
    # texts
    lambda v: v["s"].strip(), lambda v: v["s"].rstrip(), lambda v: v["s"].lstrip(), lambda v: v["s"].removesuffix("a"),
    lambda v: v["s"].split("|"), lambda v: v["s"].split(",")[-1], lambda v: len(v["s"].split(",")),
    lambda v: v["s"][0].upper() + v["s"][1:], lambda v: v["t"] in v["s"], lambda v: v["s"] in "xabc",
    lambda v: v["s"].encode("utf8"), lambda v: v["s"].encode("latin-1"), lambda v: v["b"].decode("utf-8"),
    lambda v: v["s"].splitlines() if v["s"] != "" else None, lambda v: base64.b64encode(v["b"]).decode(),
    lambda v: v["s"].replace("a", "b").upper(),
    # conditions
    lambda v: not v["s"], lambda v: not v["i"], lambda v: not v["yes"], lambda v: not v["a"], lambda v: bool(v["s"]),
    lambda v: bool(v["m"]), lambda v: "a" if v["s"] else "b", lambda v: "a" if v["a"] and v["i"] > 3 else "b",
    lambda v: v["yes"] or v["i"] > 3, lambda v: 1 < v["i"] < 9, lambda v: v["i"] in (7, 65), lambda v: "a" not in v["m"],
    # numbers, times
    lambda v: list(range(v["n"])), lambda v: divmod(v["i"], 7), lambda v: math.log(v["i"] + 8, 2), lambda v: v["i"] // 2,
    lambda v: round(v["d"]), lambda v: max(v["i"], v["n"], 3), lambda v: v["ts"].timestamp(), lambda v: v["dt"].isoformat(),
    lambda v: v["ts"].strftime("%d.%m.%y, it's %H:%M"), lambda v: v["ts"].strftime("%A %b %j %I %p"), lambda v: v["ts"].date(),
    lambda v: datetime.strptime(v["s"], "%Y-%m-%d").date() if v["s"][:2] == "20" else None,
    # elements
    lambda v: [1 for x in v["a"]], lambda v: [f"<{x}>" for x in v["w"]], lambda v: [x * 2 for x in v["a"] if x > 1],
    lambda v: sorted(v["m"]), lambda v: [key.upper() for key in v["m"]],
    lambda v: ",".join(x.upper() for x in v["w"]), lambda v: sum(x * 2 for x in v["a"]), lambda v: any(x > 2 for x in v["a"]),
]  # fmt: skip

WITHOUT: list[Callable[[Any], Any]] = [
    lambda v: f"{v['s']!r}", lambda v: f"{v['s']:^10}", lambda v: f"{v['s']:*>10}", lambda v: f"{v['d']:g}",
    lambda v: f"{v['d']:%}",
    lambda v: f"{v['d']:10}", lambda v: f"{v['i']:x}", lambda v: "%r" % v["s"], lambda v: "%(s)s" % v,
    lambda v: "{!r}".format(v["s"]), lambda v: repr(v["s"]),
    lambda v: re.sub("(?P<a_b>a)", "b", v["s"]), lambda v: re.sub("a", lambda found: "b", v["s"]),
    lambda v: re.split("(,)", v["s"]),
    lambda v: re.findall("(a)(b)", v["s"]), lambda v: re.sub("[[]", "b", v["s"]), lambda v: re.search("(", v["s"]).group(1),
    lambda v: v["ts"].strftime("%c"), lambda v: v["s"].encode("utf-16"), lambda v: v["s"].split(v["t"]), lambda v: any(v["a"]),
    lambda v: {key: n + 1 for key, n in v["m"].items()}, lambda v: list(v["s"]), lambda v: [x for x in v["w"] if x],
    lambda v: divmod(v["i"], -7),
]  # fmt: skip


def suggested(function: Callable[[Any], Any]) -> str | None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.json(SCHEMA)).map_values(function)
    with pytest.raises(ColumnMistakeError) as raised:
        builder.build()
    found = re.search(r"not one record's value\. Write (.*), or to get values per_record", str(raised.value))
    assert found is not None, str(raised.value)
    return None if found[1].startswith("it with pyspark.sql.functions") else found[1]


def plain(value: object) -> object:
    """A result as Python's own values."""
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(map(plain, value)) if isinstance(value, Row) else value


def given(function: Callable[[Any], Any], row: dict[str, Any]) -> object:
    try:
        return function(copy.deepcopy(row))
    except (AttributeError, TypeError, IndexError):  # of what is not found Python has no result
        return ...


@pytest.mark.spark
def test_suggestions_give_what_python_gives(spark: SparkSession) -> None:
    instead = [suggested(function) for function in CASES]
    assert None not in instead, CASES[instead.index(None)].__code__.co_firstlineno
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        kinds = StructType([StructField("value", StructType.fromDDL(SCHEMA))])
        frame = spark.createDataFrame([(row,) for row in ROWS], kinds).coalesce(1)
        columns = [eval(text or "", {"F": F, "v": F.col("value")}) for text in instead]
        results = frame.select(*(column.alias(f"c{at}") for at, column in enumerate(columns))).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    wrong = [
        (text, row["s"], expected, plain(result[at]))
        for at, (text, function) in enumerate(zip(instead, CASES, strict=True))
        for row, result in zip(ROWS, results, strict=True)
        if (expected := given(function, row)) is not ... and not is_same(expected, plain(result[at]))
    ]
    assert wrong == []


def is_same(expected: Any, found: Any) -> bool:
    if isinstance(expected, float):
        return isinstance(found, (int, float)) and math.isclose(expected, found, rel_tol=1e-12)
    return bool(expected == found) and isinstance(found, bool) == isinstance(expected, bool)


@pytest.mark.parametrize("function", WITHOUT)
def test_what_has_no_counterpart_gets_no_suggestion(function: Callable[[Any], Any]) -> None:
    assert suggested(function) is None


