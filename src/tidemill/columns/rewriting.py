"""Python code on values, written as an expression of Columns: ``v.lower()`` as ``F.lower(v)``.

Decides the suggestion that goes with a mistake. What has no counterpart stays as it is, so a suggestion is made only of what has
changed, and is a hint for people: it is never run. Names that are bound to Columns say which values are meant; the rest of the
code (``len(PREFIX)``) is Python's and stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from pyspark.sql import Column

from tidemill.columns import patterns
from tidemill.columns.counterparts import FUNCTIONS, METHODS, OPERATORS, RESULTS, constant_text
from tidemill.columns.trees import Names, elements_of, literal, made, made_with, of_columns, summands_of, text_node

_LOOKUP = "F.create_map(*[F.lit(each) for pair in {0}.items() for each in pair])[{1}]"
"""A dict of the program's, looked up by a Column."""
_OF_ELEMENTS = ("min", "max", "sum", "sorted", "reversed", "list", "tuple", "set", "frozenset")
_MATCHES = ("match", "search", "fullmatch")


def rewritten(node: ast.AST, columns: Names, types: Callable[[ast.AST], str | None] = lambda _: None) -> str | None:
    """The expression over Columns that does what ``node`` would do with values; None if nothing is known.

    ``columns``: the names that are bound to Columns. ``types``: the Spark type of an expression, where it is known.
    """
    if not isinstance(node, ast.expr):
        return None
    try:
        made = _Rewriter(columns, types).visit(ast.parse(ast.unparse(node), mode="eval").body)
        text = " ".join(ast.unparse(made).split())
    except (SyntaxError, ValueError, RecursionError):  # what unparse makes of a tree is no proof of anything
        return None
    return None if text == " ".join(ast.unparse(node).split()) else text


_Part = tuple[str, ast.expr | None, str | None, patterns.Shape | None]
"""Of a text: what is plain; the value behind it, with its type and its shape."""


class _Rewriter(ast.NodeTransformer):
    """Inside out."""

    def __init__(self, columns: Names, types: Callable[[ast.AST], str | None]) -> None:
        self._columns, self._known = columns, types

    def _types(self, node: ast.AST) -> str | None:
        """The Spark type of a value, as Python's code has it."""
        known = self._known(node)
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(name)) if known is None:
                return RESULTS.get(name)
            case ast.JoinedStr():
                return "string"
            case ast.Subscript(slice=ast.Slice(), value=value) if known is None:
                return self._types(value)
        return known

    def _is_column(self, node: ast.AST) -> bool:
        return of_columns(node, self._columns)

    # --- calls ---

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Attribute(value=found, attr="group"), args=[] | [ast.Constant()]) if self._is_match(found):
                return self._extracted(found, node.args[0] if node.args else ast.Constant(0)) or node
            case ast.Call(func=ast.Name("bool"), args=[value]) if self._is_column(value) and self._types(value) is not None:
                return self._truth(value)
            case ast.Call(func=ast.Attribute(ast.Name("re")), args=[_, ast.Lambda(), *_]):
                return node
        before = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(before, ast.Constant) and isinstance(before.value, str) and node.args:
            return self._on_text(before.value, node)
        if len(node.args) == 1 and isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp)):
            whole = self._quantified(node, node.args[0])
            if whole is not None:
                return whole
        kind = self._types(node.args[0]) if node.args else None
        of = self._types(before) if before is not None else None
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        if node.keywords:
            return node  # what is known takes none: without them it would be something else
        if isinstance(node.func, ast.Attribute) and self._is_column(node.func.value):
            return self._method(node, node.func, of)
        if any(self._is_column(argument) for argument in node.args):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) == 1:
                return made(_LOOKUP, node.func.value, *node.args)
            return self._function(node, kind)
        return node

    def _method(self, node: ast.Call, function: ast.Attribute, kind: str | None) -> ast.AST:
        value, name = function.value, function.attr
        match node.args:
            case [ast.Constant(value=str(text))] if name == "split":
                return made("F.split({0}, {1})", value, ast.Constant(re.escape(text)))
            case [ast.Constant(value=str(text)), ast.Constant(value=int(most))] if name == "split":
                return made("F.split({0}, {1}, {2})", value, ast.Constant(re.escape(text)), ast.Constant(most + 1))
            case [ast.Constant(value=str(text))] if name in ("removeprefix", "removesuffix"):
                pattern = f"^{re.escape(text)}" if name == "removeprefix" else rf"{re.escape(text)}\z"
                return made("F.regexp_replace({0}, {1}, {2})", value, ast.Constant(pattern), ast.Constant(""))
            case [ast.Constant(value=str(text))] if name == "strftime":
                return made_with("F.date_format({0}, {1})", value, patterns.times(text)) or node
            case [ast.Constant(value=str(text))] if name in ("encode", "decode"):
                return made_with(f"F.{name}({{0}}, {{1}})", value, patterns.encoding(text)) or node
            case [ast.List(elts=listed)] if name in ("extend", "union", "intersection"):
                array = ast.Call(made("F.array"), [literal(each, self._columns) for each in listed], [])
                return made(METHODS[name, 1], value, array)
            case [found] if name == "index" and kind is not None and kind.startswith("array"):
                return made("F.array_position({0}, {1}) - 1", value, found)
            case [] if name == "hexdigest":
                return value
            case [] if name == "isoformat" and kind == "date":
                return made("{0}.cast('string')", value)
        template = METHODS.get((name, len(node.args)))
        return node if template is None else made(template, value, *node.args)

    def _function(self, node: ast.Call, kind: str | None) -> ast.AST:
        name = ast.unparse(node.func)
        short = name.rpartition(".")[2]
        arguments = node.args
        if name in ("min", "max") and len(arguments) > 1:
            which = "F.least" if name == "min" else "F.greatest"
            return ast.Call(made(which), [literal(argument, self._columns) for argument in arguments], [])
        match arguments:
            case [pattern, *_] if name.startswith("re."):
                return node if self._is_column(pattern) else self._of_pattern(node, short)
            case [value, ast.Constant(value=str(text))] if name == "format":
                return self._formatted([("", value, kind, patterns.shape_of(text))]) or node
            case [value, ast.Constant(value=str(text))] if short == "strptime":
                return made_with("F.to_timestamp({0}, {1})", value, patterns.times(text, is_read=True)) or node
            case [_, ast.expr() as by] if name == "divmod" and not ast.unparse(by).isdigit():
                return node  # the rest has the sign of the divisor
            case [of] if name in _OF_ELEMENTS and kind is not None:
                if kind == "string":
                    return node
                arguments = [elements_of(of, kind)]
        if name == "len" and kind is not None and kind.startswith(("array", "map")):
            return made("F.size({0})", *arguments)
        if name.startswith("math.") and (short, len(arguments)) in FUNCTIONS:
            name = short
        names = (name, ".".join(name.split(".")[-2:]))
        template = next((FUNCTIONS[each, len(arguments)] for each in names if (each, len(arguments)) in FUNCTIONS), None)
        return node if template is None else made(template, *arguments)

    # --- regular expressions ---

    def _is_match(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(ast.Name("re"), name), args=[ast.Constant(value=str()), value], keywords=[]):
                return name in _MATCHES and self._is_column(value)
        return False

    def _extracted(self, found: ast.AST, group: ast.expr) -> ast.expr | None:
        """``re.search(pattern, v).group(1)``."""
        assert isinstance(found, ast.Call)
        text, how = constant_text(found.args[0]) or "", ast.unparse(found.func).removeprefix("re.")
        whole, count = patterns.searched(text, how), patterns.groups_of(text)
        match group:
            case ast.Constant(value=int(number)) if whole is not None and count is not None and number <= count:
                return made("F.regexp_extract({0}, {1}, {2})", self.visit(found.args[1]), ast.Constant(whole), group)
        return None

    def _of_pattern(self, node: ast.Call, short: str) -> ast.AST:
        """A function of ``re``. A pattern that is not in the code is taken as it is: the reader must judge it."""
        pattern, *others = node.args
        text = constant_text(pattern)
        java, groups = (pattern, 0) if text is None else (text_node(patterns.regular(text)), patterns.groups_of(text))
        if java is None or groups is None:
            return node
        match short, others:
            case "search", [value]:
                return made("{0}.rlike({1})", value, java)
            case ("match" | "fullmatch"), [value] if text is not None:
                return made_with("{0}.rlike({1})", value, patterns.searched(text, short)) or node
            case "sub", [ast.Constant(value=str(new)), value]:
                put = text_node(patterns.replacement(new))
                return node if put is None else made("F.regexp_replace({0}, {1}, {2})", value, java, put)
            case "split", [value] if not groups:
                return made("F.split({0}, {1})", value, java)
            case "findall", [value] if groups < 2:
                return made("F.regexp_extract_all({0}, F.lit({1}), F.lit({2}))", value, java, ast.Constant(groups))
        return node

    # --- text ---

    def _on_text(self, text: str, node: ast.Call) -> ast.AST:
        """``", ".join(v)`` and ``"{}!".format(v)``."""
        assert isinstance(node.func, ast.Attribute)
        kinds = [self._types(argument) for argument in node.args]
        self.generic_visit(node)
        if node.func.attr == "join" and len(node.args) == 1:
            whole = node.args[0]
            if isinstance(whole, (ast.List, ast.Tuple)):
                joined = [literal(part, self._columns) for part in whole.elts]
                return ast.Call(made("F.concat_ws"), [ast.Constant(text), *joined], [])
            return made("F.array_join({0}, {1})", whole, ast.Constant(text)) if self._is_column(whole) else node
        if node.func.attr != "format" or node.keywords or not any(self._is_column(argument) for argument in node.args):
            return node
        parts = []
        for plain, place, shape in patterns.places(text) or [("", len(kinds), None)]:
            if place is not None and place >= len(kinds):
                return node
            parts.append((plain, None, None, None) if place is None else (plain, node.args[place], kinds[place], shape))
        return self._formatted(parts) or node

    def _formatted(self, parts: Iterable[_Part]) -> ast.expr | None:
        """``F.format_string`` of what is plain, and of values with their types and shapes."""
        pattern, values = "", []
        for plain, value, kind, shape in parts:
            pattern += plain.replace("%", "%%")
            if value is None:
                continue
            found = None if shape is None else patterns.conversion(shape, kind)
            if found is None:
                return None
            text, cast = found
            pattern += text
            values.append(value if cast is None else made("{0}.cast({1})", value, ast.Constant(cast)))
        return ast.Call(made("F.format_string"), [ast.Constant(pattern), *values], [])

    def _quantified(self, node: ast.Call, over: ast.GeneratorExp | ast.ListComp) -> ast.AST | None:
        """``any(p(x) for x in v)`` and ``all(...)``."""
        name, clause = ast.unparse(node.func), over.generators[0]
        if name not in ("any", "all") or len(over.generators) > 1 or clause.ifs or not self._is_column(clause.iter):
            return None
        return self._each("F.exists" if name == "any" else "F.forall", clause, over.elt)

    def _each(self, function: str, clause: ast.comprehension, body: ast.expr) -> ast.expr:
        inner = self._columns | {name.id for name in ast.walk(clause.target) if isinstance(name, ast.Name)}
        body = _Rewriter(inner, self._types).visit(body)
        if isinstance(body, ast.Tuple):
            body = ast.Call(made("F.struct"), list(body.elts), [])
        body = made("F.lit({0})", body) if isinstance(body, ast.Constant) else body
        text = f"{function}({ast.unparse(self.visit(clause.iter))}, lambda {ast.unparse(clause.target)}: {ast.unparse(body)})"
        return ast.parse(text, mode="eval").body

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """A function of Columns within: what it gives must be one."""
        names = {argument.arg for argument in node.args.args}
        body = _Rewriter(self._columns | names, self._types).visit(node.body)
        node.body = made("F.lit({0})", body) if isinstance(body, ast.Constant) else body
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``v.name``, which is no field but a method."""
        self.generic_visit(node)
        return made(f"{{0}}[{node.attr!r}]", node.value) if self._is_column(node.value) and hasattr(Column, node.attr) else node

    # --- what Python computes itself ---

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        clause = node.generators[0]
        kind = self._types(clause.iter)
        if len(node.generators) > 1 or not self._is_column(clause.iter):
            return self.generic_visit(node)
        if kind == "string" or any(isinstance(condition, ast.Name) for condition in clause.ifs):
            return node  # no array; no condition that is known to be one
        clause.iter = elements_of(clause.iter, kind)
        for condition in clause.ifs:
            kept = ast.comprehension(target=clause.target, iter=clause.iter, ifs=[], is_async=0)
            clause.iter = self._each("F.filter", kept, condition)
        if ast.unparse(node.elt) == ast.unparse(clause.target):
            return clause.iter
        return self._each("F.transform", clause, node.elt)

    visit_GeneratorExp = visit_ListComp  # type: ignore[assignment]  # noqa: N815  # the same, where it is drawn from

    def visit_DictComp(self, node: ast.DictComp | ast.SetComp) -> ast.AST:
        return node

    visit_SetComp = visit_DictComp  # noqa: N815  # nor is there a set

    def _truth(self, node: ast.expr) -> ast.expr:
        """A condition: of a value that is no boolean, what Python takes for true."""
        kind = self._types(node) or ""
        value: ast.expr = self.visit(node)
        if kind.startswith(("array", "map")):
            return made("F.size({0}) > 0", value)
        if kind in ("string", *patterns.NUMBERS):
            return made("{0} != {1}", value, ast.Constant("" if kind == "string" else 0))
        return value

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if not self._is_column(node.test):
            return self.generic_visit(node)
        test, body, other = self._truth(node.test), self.visit(node.body), self.visit(node.orelse)
        return made("F.when({0}, {1}).otherwise({2})", test, body, other)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if not self._is_column(node):
            return self.generic_visit(node)
        last = node.values[-1]
        is_value = isinstance(last, ast.Constant) and not isinstance(last.value, bool)
        if isinstance(node.op, ast.Or) and (is_value or self._types(last) not in (None, "boolean")):
            return ast.Call(made("F.coalesce"), [literal(self.visit(value), self._columns) for value in node.values], [])
        values = [self._truth(value) for value in node.values]
        sign = " & " if isinstance(node.op, ast.And) else " | "
        return ast.parse(sign.join(f"({ast.unparse(value)})" for value in values), mode="eval").body

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if not isinstance(node.op, ast.Not) or not self._is_column(node.operand):
            return self.generic_visit(node)
        return made("~({0})", self._truth(node.operand))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if not self._is_column(node):
            return self.generic_visit(node)
        match node:
            case ast.Compare(left=found, ops=[sign], comparators=[ast.Constant(value=None)]) if self._is_match(found):
                is_found = isinstance(sign, (ast.IsNot, ast.NotEq))
                return self.visit(found) if is_found else made("~({0})", self.visit(found))
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        parts = [self._compared(*each) for each in zip(sides, node.ops, node.comparators, strict=False)]
        if len(parts) == 1:
            return parts[0]
        return ast.parse(" & ".join(f"({ast.unparse(part)})" for part in parts), mode="eval").body

    def _compared(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> ast.expr:
        if isinstance(right, ast.Constant) and right.value is None:
            template = "{0}.isNull()" if isinstance(sign, (ast.Is, ast.Eq)) else "{0}.isNotNull()"
            return made(template, left)
        if isinstance(sign, (ast.In, ast.NotIn)):
            no = "~" if isinstance(sign, ast.NotIn) else ""
            if constant_text(right) is not None:
                return made(no + "F.lit({0}).contains({1})", right, left)
            if not self._is_column(right):
                listed = ast.List(right.elts) if isinstance(right, (ast.Tuple, ast.Set)) else made("[*{0}]", right)
                return made(no + "{0}.isin({1})", left, right if isinstance(right, ast.List) else listed)
            kind = self._types(right) or ""
            if kind.startswith("array"):
                return made(no + "F.array_contains({0}, {1})", right, left)
            return made(no + ("F.map_contains_key({0}, {1})" if kind.startswith("map") else "{0}.contains({1})"), right, left)
        return ast.Compare(left, [sign], [right])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.op, ast.Mod) and (pattern := constant_text(node.left)) is not None:
            right = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            values = iter([(self.visit(value), self._types(value)) for value in right])
            parts: list[_Part] = []
            for plain, shape in patterns.percents(pattern) or [("", patterns.Shape(kind="none"))]:
                value, kind = (None, None) if shape is None else next(values, (ast.Constant(None), "none"))
                parts.append((plain, value, kind, shape))
            return (self._formatted(parts) if next(values, None) is None else None) or node
        if isinstance(node.op, ast.Add) and self._is_column(node):
            summands = summands_of(node)
            if any(constant_text(part) is not None or self._types(part) == "string" for part in summands):
                return ast.Call(made("F.concat"), [literal(self.visit(part), self._columns) for part in summands], [])
        self.generic_visit(node)
        template = OPERATORS.get(type(node.op))
        return made(template, node.left, node.right) if template is not None and self._is_column(node) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if self._is_match(node.value):
            return self._extracted(node.value, node.slice) or node
        kind = self._types(node.value) or ""
        is_array = kind.startswith("array")
        self.generic_visit(node)
        if self._is_column(node.slice) and not self._is_column(node.value):
            return made(_LOOKUP, node.value, node.slice)
        if not self._is_column(node.value):
            return node
        match node.slice:
            case ast.Constant(value=int(at)) if kind == "string":
                return made("F.substring({0}, {1}, 1)", node.value, ast.Constant(at + 1))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())) if is_array or kind == "string":
                return made("F.element_at({0}, {1})" if is_array else "F.substring({0}, {1}, 1)", node.value, node.slice)
        match node.slice:
            case ast.Slice(lower=None, upper=None, step=ast.expr() as step) if ast.unparse(step) == "-1":
                return made("F.reverse({0})", node.value)
            case ast.Slice(lower=None, upper=ast.UnaryOp(op=ast.USub(), operand=left_out), step=None) if not is_array:
                return made("F.substr({0}, F.lit(1), F.length({0}) - {1})", node.value, left_out)
            case ast.Slice(lower=None, upper=ast.UnaryOp(op=ast.USub()), step=None):
                return node
            case ast.Slice(lower=None, upper=ast.expr() as upper, step=None):
                return made("F.slice({0}, 1, {1})" if is_array else "F.substring({0}, 1, {1})", node.value, upper)
            case ast.Slice(lower=ast.Constant(value=int(first)), upper=None, step=None):
                rest = "F.slice({0}, {1}, F.size({0}))" if is_array else "F.substr({0}, F.lit({1}))"
                return made(rest, node.value, ast.Constant(first + 1))
        return node

    # --- text and collections that Python puts together ---

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        if not self._is_column(node):
            return node
        parts: list[_Part] = []
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                parts.append((constant_text(part) or "", None, None, None))
                continue
            shape, kind = _shape(part), self._types(part.value)
            value = self.visit(part.value)
            if (pattern := patterns.times(shape)) and "%" in shape:
                value, kind, shape = made("F.date_format({0}, {1})", value, ast.Constant(pattern)), "string", ""
            parts.append(("", value, kind, patterns.shape_of(shape)))
        return self._formatted(parts) or node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        if not any(self._is_column(each) for each in (*node.keys, *node.values) if each is not None):
            return self.generic_visit(node)
        self.generic_visit(node)
        texts = list(map(constant_text, node.keys))
        if node.keys[0] is None and None not in texts[1:] and self._is_column(node.values[0]):
            whole = node.values[0]
            for text, value in zip(texts[1:], node.values[1:], strict=True):
                whole = made("{0}.withField({1}, {2})", whole, ast.Constant(text), literal(value, self._columns))
            return whole
        if None in node.keys:
            return node
        if None in texts:
            pairs = zip(node.keys, node.values, strict=True)
            return ast.Call(made("F.create_map"), [literal(each, self._columns) for pair in pairs for each in pair if each], [])
        fields = [
            made("{0}.alias({1})", literal(value, self._columns), key)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        ]
        return ast.Call(made("F.struct"), fields, [])

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        if not any(self._is_column(each) for each in node.elts):
            return node
        return ast.Call(made("F.array"), [literal(each, self._columns) for each in node.elts], [])


def _shape(part: ast.FormattedValue) -> str:
    """What stands behind the colon; what is no shape if that is not known, or the value's ``repr`` is meant."""
    match part:
        case ast.FormattedValue(conversion=-1 | 115, format_spec=None):
            return ""
        case ast.FormattedValue(conversion=-1 | 115, format_spec=ast.JoinedStr(values=[ast.Constant(value=str(text))])):
            return text
    return "unknown"
