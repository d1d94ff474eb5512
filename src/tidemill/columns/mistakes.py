"""Column mistakes: places in a function that use a Column as one record's value, found by its error or its result.

Decides what counts as one. A function may fail for reasons of its own (a name that is not bound yet, a service that is away), so
an error is only claimed where PySpark's Column itself refuses, or where Python's own code refuses a Column.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

from tidemill.columns.counterparts import FUNCTIONS
from tidemill.columns.functions import ColumnFunction, Expected
from tidemill.columns.recorded import TextInArithmeticError, TextOfColumnError, has_text_of_column, is_text_of_column
from tidemill.columns.rewriting import rewritten
from tidemill.columns.source_code import FunctionNode, SourcePlace, raised_by_python, text_of, where_defined, where_failed
from tidemill.columns.trees import Names, literal, made, of_columns

_TEXT_OF_COLUMN = "makes text of a Column"
_NOT_CALLABLE = "'Column' object is not callable"
_REFUSALS = {
    "CANNOT_CONVERT_COLUMN_INTO_BOOL": "asks whether a Column is true",
    "CANNOT_APPLY_IN_FOR_COLUMN": "asks with `in` what a Column holds",
    "NOT_ITERABLE": "goes through the elements of a Column",
    "COLUMN_IN_LIST": "puts a Column into a Python list",
    "SLICE_WITH_STEP": "takes a slice of a Column",
    "NOT_SAME_TYPE": "takes a slice of a Column",
    "HIGHER_ORDER_FUNCTION_SHOULD_RETURN_COLUMN": "gives a Python value where a function has to give a Column",
}
"""Uses of a Column that PySpark's Python refuses, by error condition."""
_OF_ARGUMENTS = (TypeError, ValueError, AttributeError, LookupError)
_OF_SIGNATURE = re.compile(r"missing \d+ required|takes .* arguments? but|unexpected keyword|multiple values")
"""A call that is wrong for whatever is handed over."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """``what`` the code does with a Column, ``code`` and the Columns' way to say it where they are known; ``place``: where."""

    what: str
    place: SourcePlace | None = None
    code: str | None = None
    instead: str | None = None
    advice: str | None = None
    """The way out, where it is no other way to say the same."""
    is_of_columns: bool = False
    """The code is meant as an expression, so ``per_record`` is no way out."""


def columns_of(use: ColumnFunction, place: SourcePlace | None) -> Names:
    """The names at a place that are bound to Columns: those that are now, or else the function's arguments."""
    bound = {name for name, value in place.names.items() if isinstance(value, Column)} if place is not None else set()
    return frozenset(bound or parameters_of(use))


def parameters_of(use: ColumnFunction) -> tuple[str, ...]:
    """The names that the function has for what it gets."""
    if where_defined(use.function) is None:  # Python's own: its names say nothing to the reader
        return use.names
    try:
        found = tuple(inspect.signature(use.function).parameters)
    except (TypeError, ValueError):
        return use.names
    return found[: len(use.names)] if len(found) >= len(use.names) else use.names


# --- what was raised ---------------------------------------------------------------------------------------------------


def of_error(use: ColumnFunction, error: Exception) -> Mistake | None:
    """The mistake that an exception of the function shows; None if it may be another thing."""
    place = where_failed(error.__traceback__)
    node = place.node if place is not None else None
    columns = columns_of(use, place)
    refused = _type_refused(error)
    if refused is not None and isinstance(node, ast.Call):
        return _of_argument(use, place, node, columns, refused)
    what = _what(error, node, columns)
    if what is None:
        return _misread_field(use)
    if place is None or node is None:
        return Mistake(what, place or where_defined(use.function), instead=_counterpart(use))
    whole = _whole(place, columns)
    return Mistake(what, place, text_of(whole) if isinstance(whole, ast.expr) else None, _instead(use, place, whole, columns))


def _type_refused(error: Exception) -> str | None:
    """The type of the value that a function of PySpark got where it takes Columns."""
    if not isinstance(error, PySparkException) or error.getCondition() != "NOT_EXPECTED_TYPE":
        return None
    said = error.getMessageParameters() or {}
    return said["arg_type"] if said.get("expected_type") == "Column or str" else None


def _of_argument(use: ColumnFunction, place: SourcePlace | None, call: ast.Call, columns: Names, refused: str) -> Mistake:
    """Python's tuples, lists and numbers among a call's arguments, or in a list of them, as Columns."""
    given = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.List) else call.args
    several = sum(isinstance(each, ast.Tuple) for each in given) > 1

    def as_column(node: ast.expr) -> ast.expr:
        match node:
            case ast.Tuple(elts=parts):
                columns_of_parts = [literal(part, columns) for part in parts]
                if use.operator == "flat_map" and several and len(parts) == 2:
                    names = (ast.Constant("key"), ast.Constant("value"))
                    columns_of_parts = [made("{0}.alias({1})", *pair) for pair in zip(columns_of_parts, names, strict=True)]
                return ast.Call(ast.Attribute(ast.Name("F"), "struct"), columns_of_parts, [])
            case ast.List(elts=parts):
                return ast.Call(ast.Attribute(ast.Name("F"), "array"), [literal(part, columns) for part in parts], [])
            case ast.Constant(value=value) if type(value).__name__ == refused:
                return literal(node, columns)
        return node

    code, written = text_of(call), ast.unparse(ast.Call(call.func, [as_column(each) for each in given], call.keywords))
    what = f"hands {_article(refused)} {refused} to {text_of(call.func)}(), which takes Columns"
    advice = "Give a constant as F.lit(...), several values as F.struct(...) or F.array(...)"
    changed = written != ast.unparse(call)
    return Mistake(what, place, code, written if changed else None, None if changed else advice, is_of_columns=True)


def _what(error: Exception, node: ast.AST | None, columns: Names) -> str | None:
    if isinstance(error, TextOfColumnError):
        return _TEXT_OF_COLUMN
    if isinstance(error, TextInArithmeticError):
        return f"uses text with {error.sign}, which is for numbers where Columns are concerned"
    if isinstance(error, PySparkException):
        return _REFUSALS.get(error.getCondition() or "")
    text = str(error)
    if _NOT_CALLABLE in text:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if of_columns(value, columns):
                return f"calls .{method}(), which a Column does not have"
        return _refused(node) if isinstance(node, ast.Call) else "calls what a Column does not have"
    if isinstance(error, AttributeError) and _method_as_field(node, columns) is not None:
        return f"takes Column's method .{_method_as_field(node, columns)} for a field"
    if isinstance(error, _OF_ARGUMENTS) and re.search(r"\bColumn\b", text):
        return _refused(node)
    is_pythons = type(error).__name__ in ("TypeError", "error", "PatternError") and raised_by_python(error.__traceback__)
    if not is_pythons or _OF_SIGNATURE.search(text) or not _hands_over(node, columns):
        return None
    return _refused(node)


def _hands_over(node: ast.AST | None, columns: Names) -> bool:
    """True if a call that failed gets a Column. Where only the function is known, any of its calls may have."""
    calls = ast.walk(node) if isinstance(node, FunctionNode) else [node]
    return any(isinstance(call, ast.Call) and any(of_columns(argument, columns) for argument in call.args) for call in calls)


def _refused(node: ast.AST | None) -> str:
    match node:
        case ast.Call(func=function):
            return f"hands a Column to {text_of(function)}()"
        case ast.BinOp() | ast.UnaryOp() | ast.AugAssign():
            return "uses an operator that Columns do not have"
        case ast.Subscript() | ast.Compare() | ast.Dict() | ast.Set():
            return "looks a Column up in a Python collection"
        case ast.Assign() | ast.Delete():
            return "changes a Column in place"
    return "uses a Column as a Python value"


def _method_as_field(node: ast.AST | None, columns: Names) -> str | None:
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Attribute) and of_columns(each.value, columns) and hasattr(Column, each.attr):
            return each.attr
    return None


def _whole(place: SourcePlace, columns: Names) -> ast.AST:
    """The expression that the failing one is the head of: ``a if v > 3 else b`` of ``v > 3``, ``[f(x) for x in v]`` of ``v``."""
    node = place.node
    assert node is not None
    for around in place.around:
        match around:
            case ast.IfExp(test=test) if test is node:
                node = around
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                node = around
            case ast.Compare() if any(isinstance(sign, (ast.In, ast.NotIn)) for sign in around.ops) or len(around.ops) > 1:
                node = around
            case ast.ListComp(generators=[each, *_]) | ast.GeneratorExp(generators=[each, *_]) if node in (each.iter, *each.ifs):
                node = around
            case ast.FormattedValue() | ast.JoinedStr():
                node = around
            case ast.BinOp(op=ast.Add()) if isinstance(node, ast.BinOp) and of_columns(around, columns):
                node = around
            case _:
                break
    return node


def _instead(use: ColumnFunction, place: SourcePlace, whole: ast.AST, columns: Names) -> str | None:
    """The whole function's expression where it is one, else the part that failed."""
    body = next((each.body for each in (whole, *place.around) if isinstance(each, ast.Lambda)), None)
    types = types_of(use)
    if body is not None and len(text_of(body)) < _SHORT:
        if use.gives is Expected.PAIR and isinstance(body, (ast.Dict, ast.List)):
            return _as_columns(use, body)
        found = rewritten(body, columns, types)
        return found if found is not None and not _is_still_there(place.node, found) else None
    for around in (whole, *place.around[:1]):
        match around:
            case ast.If(test=test) if test is whole:
                return f"F.when({rewritten(test, columns, types) or text_of(test)}, ...).otherwise(...)"
            case ast.For(target=each, iter=elements) if around is whole or elements is whole:
                return f"F.transform({text_of(elements)}, lambda {text_of(each)}: ...)"
    return rewritten(whole, columns, types)


def _is_still_there(failed: ast.AST | None, suggestion: str) -> bool:
    """A call that has failed and that nothing is known for."""
    nodes = ast.walk(ast.parse(suggestion, mode="eval"))
    return isinstance(failed, ast.Call) and text_of(failed) in (text_of(node) for node in nodes if isinstance(node, ast.Call))


def _counterpart(use: ColumnFunction) -> str | None:
    """The counterpart of a builtin that is passed itself, as in ``map_values(str.upper)``."""
    function = use.function
    name = getattr(function, "__qualname__", "")
    names = (name, f"{getattr(function, '__module__', '')}.{name}")
    found = next((FUNCTIONS[name, 1] for name in names if (name, 1) in FUNCTIONS), None)
    return None if found is None or len(use.names) != 1 else f"lambda {use.names[0]}: {found.format(use.names[0])}"


_SHORT = 160


def types_of(use: ColumnFunction) -> Callable[[ast.AST], str | None]:
    """The Spark type of an argument, or of a field that a schema names, by its expression."""
    known = dict(zip(parameters_of(use), use.types, strict=False))

    def kind(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return field_type(kind(node.value), str(node.slice.value))
        return field_type(kind(node.value), node.attr) if isinstance(node, ast.Attribute) else None

    return kind


def field_type(struct: str | None, name: str) -> str | None:
    """The type of a field of a struct, both as DDL text, as far as its first word."""
    found = re.search(rf"[<,]\s*`?{re.escape(name)}`?\s*:\s*(\w+)", struct or "")
    return None if found is None else found[1]


# --- what it gave ------------------------------------------------------------------------------------------------------


def of_result(use: ColumnFunction, result: object) -> Mistake | None:
    """The mistake that what a function gave shows; None if it is a Column, a constant, or can't be judged."""
    misread = _misread_field(use)
    if misread is not None:
        return misread
    parts = _parts(use, result)
    if parts is None:
        return _of_value(use, result, f"gives {_kind(result)}, expected {use.gives.value}")
    for part in parts:
        found = _wrong(use, part)
        if found is not None:
            return _of_value(use, part, found)
    return None


def _parts(use: ColumnFunction, result: object) -> tuple[object, ...] | None:
    if use.gives is Expected.PAIR:
        return result if isinstance(result, tuple) and len(result) == 2 else None
    if use.gives is Expected.KEYS and isinstance(result, (tuple, list)):
        return tuple(result)
    return (result,)


_DECIDED_ONCE = "compares a Column with None by `is`, which is decided once and not for each record"


def _wrong(use: ColumnFunction, value: object) -> str | None:
    if isinstance(value, Column):
        return _TEXT_OF_COLUMN if isinstance(value, ClassicColumn) and has_text_of_column(value._jc) else None
    if value is None:
        return "gives nothing (None)" if _gives_nothing(use) else None
    if is_text_of_column(value):
        return _TEXT_OF_COLUMN
    if isinstance(value, bool):
        return _DECIDED_ONCE if _asks_for_none(use) else None
    if isinstance(value, (list, tuple, dict, set, frozenset)) or inspect.isgenerator(value) or inspect.iscoroutine(value):
        if isinstance(value, list) and not any(isinstance(each, (Column, list, tuple, dict, set)) for each in value):
            return None
        if inspect.iscoroutine(value):
            value.close()
        return f"gives {_kind(value)}, expected {use.gives.value}"
    if isinstance(value, Iterator) or callable(value) or isinstance(value, (re.Match, re.Pattern)):
        return f"gives {_kind(value)}, expected {use.gives.value}"
    return None


def _of_value(use: ColumnFunction, value: object, what: str) -> Mistake:
    place = where_defined(use.function)
    if value is None:
        return Mistake(what, place, advice="Return a Column; what is done for its effect belongs into peek(...)")
    body = _body(place)
    code = text_of(body) if body is not None and len(text_of(body)) < _SHORT else None
    if body is None:
        return Mistake(what, place, code, _counterpart(use))
    instead = rewritten(body, frozenset(parameters_of(use)), types_of(use))
    if instead is None or use.gives is Expected.PAIR:
        instead = _as_columns(use, body) or instead
    return Mistake(what, place, code, instead)


def _as_columns(use: ColumnFunction, body: ast.expr) -> str | None:
    """The array, struct or pair of what Python puts together."""

    def arguments(parts: list[ast.expr], *names: str) -> str:
        columns = [literal(part, frozenset(parameters_of(use))) for part in parts]
        if names:
            columns = [made("{0}.alias({1})", each, ast.Constant(name)) for each, name in zip(columns, names, strict=False)]
        return ", ".join(ast.unparse(each) for each in columns)

    match body:
        case ast.List(elts=[first, second]) if use.gives is Expected.PAIR:
            return f"({ast.unparse(first)}, {ast.unparse(second)})"
        case ast.Dict(keys=[ast.expr() as key], values=[only]) if use.gives is Expected.PAIR:
            return f"({ast.unparse(key)}, {ast.unparse(only)})"
        case _ if use.gives is Expected.PAIR:
            return None
        case ast.List(elts=[ast.Tuple(), *others] as rows) if use.operator == "flat_map":
            names = ("key", "value") if others else ()  # Spark wants the same names in each struct of an array
            structs = (f"F.struct({arguments(row.elts, *names)})" for row in rows if isinstance(row, ast.Tuple))
            return f"F.array({', '.join(structs)})"
        case ast.Tuple(elts=parts) if use.operator == "flat_map":
            return f"F.array(F.struct({arguments(parts)}))"
        case ast.List(elts=parts):
            return f"F.array({arguments(parts)})"
        case ast.Tuple(elts=parts):
            return f"F.struct({arguments(parts)})"
    return None


def _body(place: SourcePlace | None) -> ast.expr | None:
    """The expression that a function returns, where it is one."""
    node = place.node if place is not None else None
    if isinstance(node, ast.Lambda):
        return node.body
    if isinstance(node, ast.FunctionDef):
        returns = [each for each in ast.walk(node) if isinstance(each, ast.Return)]
        return returns[0].value if len(returns) == 1 else None
    return None


def _gives_nothing(use: ColumnFunction) -> bool:
    """True of a function that returns None without saying so."""
    place = where_defined(use.function)
    node = place.node if place is not None else None
    if isinstance(node, ast.Lambda):
        columns = frozenset(parameters_of(use))
        return isinstance(node.body, ast.Call) and of_columns(node.body, columns)
    if isinstance(node, ast.FunctionDef):
        says = any(isinstance(each, ast.Return) for each in ast.walk(node))
        does = any(not isinstance(each, ast.Pass) and not _is_docstring(each) for each in node.body)
        return does and not says
    return False


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _asks_for_none(use: ColumnFunction) -> bool:
    body, names = _body(where_defined(use.function)), parameters_of(use)
    return any(
        isinstance(each, ast.Compare) and isinstance(each.ops[0], (ast.Is, ast.IsNot)) and of_columns(each.left, frozenset(names))
        for each in (ast.walk(body) if body is not None else ())
    )


def _misread_field(use: ColumnFunction) -> Mistake | None:
    """``v.name`` of a value that has a field of that name: the method of Column is what Python finds."""
    if not any(kind is not None and "<" in kind for kind in use.types):
        return None
    place = where_defined(use.function)
    if place is None or place.node is None:
        return None
    types = types_of(use)
    called = {id(each.func) for each in ast.walk(place.node) if isinstance(each, ast.Call)}
    for each in ast.walk(place.node):
        if not isinstance(each, ast.Attribute) or id(each) in called or not hasattr(Column, each.attr):
            continue
        if field_type(types(each.value), each.attr) is not None:
            found = SourcePlace(place.file, each.lineno, {}, each)
            what = f"finds Column's method .{each.attr}, not the field {each.attr!r}"
            return Mistake(what, found, text_of(each), f"{ast.unparse(each.value)}[{each.attr!r}]")
    return None


def _kind(value: object) -> str:
    name = "function" if inspect.isroutine(value) else type(value).__name__
    return f"{_article(name)} {name}"


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"
