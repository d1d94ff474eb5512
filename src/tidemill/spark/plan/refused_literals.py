"""Literals in functions of Columns that Java refuses for every record: regular expressions, formats of times, time zones ...

Spark looks at such a literal when the first record comes, so a program with one would start and then lose each micro-batch.
Decides which arguments of which expressions are asked about, and leaves the answer to the JVM: an expression whose arguments are
literals is computed once by itself, with neutral values (an empty text, 0) for what comes from records. Only errors about the
literal count: nothing is concluded from what a neutral value does. Of an expression of literals only every error counts; of those
that are in no branch (``F.lit(1) / F.lit(0)``), Catalyst's own rule computes all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame

from tidemill.errors import FunctionFailedError
from tidemill.spark.batch_failures import causes_of, errors_unlogged, failure_of, one_sentence
from tidemill.spark.java import JavaObject, class_of, items_of, sequence_of

_ARGUMENTS: Mapping[str, tuple[int, ...]] = {
    "RLike": (1,), "Like": (1,), "StringSplit": (1,), "StringToMap": (1, 2), "RegExpReplace": (1, 2), "RegExpInStr": (1,),
    "RegExpExtract": (1, 2), "RegExpExtractAll": (1, 2),
    "DateFormatClass": (1,), "GetTimestamp": (1,), "UnixTimestamp": (1,), "ToUnixTimestamp": (1,), "FromUnixTime": (1,),
    "FromUTCTimestamp": (1,), "ToUTCTimestamp": (1,), "ConvertTimezone": (0, 1), "NextDay": (1,),
    "FormatString": (0,), "ElementAt": (1,), "Elt": (0,), "Slice": (1,), "ArrayInsert": (1,), "Sequence": (0, 1),
    "BitwiseGet": (1,), "VariantGet": (1,), "JsonToStructs": (), "CsvToStructs": (), "StructsToCsv": (), "XmlToStructs": (),
    "StructsToXml": (),
    "Invoke": (0,),  # to_json, xpath, parse_url, schema_of_json: the literal has their options, or path
    "StaticInvoke": (1,),  # encode, decode, aes_encrypt
}  # fmt: skip
"""Children that must be literals, by the class of Spark's expression; the others are given neutral values."""
_NAMES = {"GetTimestamp": "to_timestamp or to_date", "Invoke": "one of its functions", "StaticInvoke": "one of its functions"}
"""Where Spark's own would say nothing to the reader."""
_MAY_HAVE_SOME = re.compile(
    r"like|split|str_to_map|regexp|date_format|to_date|timestamp|unixtime|timezone|next_day|format_string|printf|element_at|"
    r"json|csv|xml|xpath|url|encode|decode|aes_|to_utc|from_utc|\belt\b|slice|array_insert|sequence|bit_get|getbit|variant_get|"
    r"schema_of", re.IGNORECASE
)  # fmt: skip
"""Names in an expression's SQL that may have such a literal: looking at the expression's parts takes many calls of the JVM."""
_ABOUT_A_LITERAL = re.compile(
    r"\[(INVALID_PARAMETER_VALUE\.(PATTERN|REGEX_GROUP_INDEX|CHARSET|AES_KEY_LENGTH|START|LENGTH|BIT_POSITION_RANGE)|"
    r"INVALID_REGEXP_REPLACE|INVALID_FORMAT\.|INVALID_VARIANT_GET_PATH|INVALID_ARRAY_INDEX\]|UNSUPPORTED_FEATURE\.AES_MODE|"
    r"INVALID_DATETIME_PATTERN|INCONSISTENT_BEHAVIOR_CROSS_VERSION\.DATETIME_(PATTERN_RECOGNITION|WEEK_BASED_PATTERN)|"
    r"INVALID_TIMEZONE|ILLEGAL_DAY_OF_WEEK|INVALID_INDEX_OF_ZERO|PARSE_MODE_UNSUPPORTED)"
)
_OF_A_REPLACEMENT = "[INVALID_REGEXP_REPLACE]"
_OF_JAVA = re.compile(
    r"java\.util\.(regex\.PatternSyntaxException|\w*Format\w*Exception): |java\.lang\.RuntimeException: Invalid XPath "
)
_NEUTRAL_TEXTS = {"XPath": "<a/>", "ParseUrl": "http://a/?a=a"}
"""By the beginning of the name of a function's class: of an empty text they give null, whatever the literal."""


def refused_literal(frame: DataFrame, expression: JavaObject) -> str | None:
    """What Java says of a literal in the expression, an analysed one over the columns of ``frame``; None if it takes all."""
    with errors_unlogged():
        plan = _as_computed(frame, expression)
        return _of_its_parts(frame, expression, plan) or _failing_constant(frame, plan)


def _of_its_parts(frame: DataFrame, expression: JavaObject, plan: JavaObject) -> str | None:
    if _MAY_HAVE_SOME.search(expression.sql()) is None:
        return None
    for part in _parts(plan.expressions().apply(0)):
        literals = _ARGUMENTS.get(part.getClass().getSimpleName())
        if literals is None:
            continue
        arguments = list(items_of(part.children()))
        if len(arguments) > max(literals, default=-1) and all(arguments[at].foldable() for at in literals):
            said = _refusal(frame, part, arguments, literals)
            if said is not None:
                return said
    return None


def _as_computed(frame: DataFrame, expression: JavaObject) -> JavaObject:
    """A plan of it alone, functions that Spark has other expressions for replaced by these."""
    rule = class_of(frame.sparkSession, "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions")
    selected = class_of(frame.sparkSession, "org.apache.spark.sql.catalyst.plans.logical.Project")
    return rule.apply(selected(sequence_of(frame.sparkSession, [expression]), frame._jdf.queryExecution().analyzed()))


def _failing_constant(frame: DataFrame, plan: JavaObject) -> str | None:
    try:
        class_of(frame.sparkSession, "org.apache.spark.sql.catalyst.optimizer.ConstantFolding").apply(plan)
    except (Py4JJavaError, CapturedException) as problem:
        found = failure_of(problem)
        if isinstance(found, FunctionFailedError):
            return f"a part of it that has no Column of a record fails, whatever the record. Correct it: {found.message}"
    return None


def _parts(expression: JavaObject) -> Iterator[JavaObject]:
    todo = [expression]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(items_of(part.children()))


def _refusal(frame: DataFrame, part: JavaObject, arguments: list[JavaObject], literals: tuple[int, ...]) -> str | None:
    new = class_of(frame.sparkSession, "org.apache.spark.sql.catalyst.expressions.Literal")
    try:
        given = [each if each.foldable() else _neutral(new, part, each.dataType()) for each in arguments]
    except (Py4JJavaError, CapturedException):  # a type, such as geometry, that has no neutral value
        return None
    said = _error(frame, part, given, is_of_literals=all(each.foldable() for each in arguments))
    if said is None and part.getClass().getSimpleName().startswith(("RegExpReplace", "RegExpExtract")):
        # Groups are looked for where the pattern has matched: one that matches an empty text as well has the same groups.
        pattern = given[1].eval(None)
        if pattern is not None:
            with_empty = new.create(f"{pattern}|", given[1].dataType())
            said = _error(frame, part, [new.default(given[0].dataType()), with_empty, *given[2:]])
    if said is None:
        return None
    found = " and ".join(repr(str(each.eval(None))) for each in (arguments[at] for at in literals) if _is_shown(each))
    name = _NAMES.get(part.getClass().getSimpleName()) or part.prettyName()
    return f"{name} can't work{' with ' * bool(found)}{found}, whatever the record. Correct it: {said}"


def _neutral(new: JavaObject, part: JavaObject, kind: JavaObject) -> JavaObject:
    if part.getClass().getSimpleName() == "Invoke" and kind.typeName() == "string":
        named = str(part.children().apply(0).toString())
        for begin, text in _NEUTRAL_TEXTS.items():
            if named.startswith(begin):
                return new.create(text, kind)
    return new.default(kind)


def _is_shown(literal: JavaObject) -> bool:
    """Not a key of aes_encrypt, nor an object of Spark's."""
    return literal.dataType().typeName() in ("string", "integer")


def _error(
    frame: DataFrame, part: JavaObject, arguments: list[JavaObject], *, is_of_literals: bool = False
) -> str | None:
    try:
        part.withNewChildren(sequence_of(frame.sparkSession, arguments)).eval(None)
    except (Py4JJavaError, CapturedException) as problem:
        causes = causes_of(problem)
        of_spark = next((said for _, said in causes if _ABOUT_A_LITERAL.match(said)), None)
        of_java = next((each for each in causes if _OF_JAVA.match(": ".join(each))), None)
        if is_of_literals and of_spark is None and of_java is None:
            of_java = causes[-1]
        if of_spark is not None and of_spark.startswith(_OF_A_REPLACEMENT):  # it names the texts that it was tried with
            of_java = causes[-1]
        if of_java is not None:
            return f"{of_java[0]}: {of_java[1].splitlines()[0]}"
        return None if of_spark is None else one_sentence(of_spark)
    return None
