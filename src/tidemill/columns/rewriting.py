"""Python code on values, written as an expression of Columns: ``v.lower()`` as ``F.lower(v)``.

Decides the suggestion that goes with a mistake. What has no counterpart stays as it is, so a suggestion is made only of what has
changed, and is a hint for people: it is never run. Names that are bound to Columns say which values are meant; the rest of the
code (``len(PREFIX)``) is Python's and stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from string import Formatter

from pyspark.sql import Column

from tidemill.columns.counterparts import FUNCTIONS, METHODS, OPERATORS, constant_text

Names = frozenset[str]
_LOOKUP = "F.create_map(*[F.lit(each) for pair in {0}.items() for each in pair])[{1}]"
"""A dict of the program's, looked up by a Column."""


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


def of_columns(node: ast.AST, columns: Names) -> bool:
    """True of a Column, as far as can be seen: a name of one, its field, a call of its methods or with it, an operation on it."""
    match node:
        case ast.Name(id=name):
            return name in columns
        case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
            return of_columns(value, columns)
        case ast.Call(func=ast.Attribute(value=value), args=arguments):
            return of_columns(value, columns) or any(of_columns(argument, columns) for argument in arguments)
        case ast.Call(args=arguments):
            return any(of_columns(argument, columns) for argument in arguments)
        case ast.BinOp(left=left, right=right):
            return of_columns(left, columns) or of_columns(right, columns)
        case ast.UnaryOp(operand=operand):
            return of_columns(operand, columns)
        case ast.Compare(left=left, comparators=others):
            return any(of_columns(side, columns) for side in (left, *others))
        case ast.BoolOp(values=values):
            return any(of_columns(value, columns) for value in values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return any(of_columns(part, columns) for part in (test, body, orelse))
        case ast.JoinedStr(values=values):
            return any(isinstance(part, ast.FormattedValue) and of_columns(part.value, columns) for part in values)
    return False


def literal(node: ast.expr, columns: Names) -> ast.expr:
    """A literal where Spark would read text as a column's name: ``F.lit("x")``."""
    return node if of_columns(node, columns) else made("F.lit({0})", node)


def made(template: str, *parts: ast.expr) -> ast.expr:
    """The expression of a template with ``parts`` in its places; what has an operator gets parentheses."""
    texts = [ast.unparse(part) if isinstance(part, _ATOMS) else f"({ast.unparse(part)})" for part in parts]
    return ast.parse(template.format(*texts), mode="eval").body


_ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Tuple, ast.JoinedStr)


class _Rewriter(ast.NodeTransformer):
    """Inside out."""

    def __init__(self, columns: Names, types: Callable[[ast.AST], str | None]) -> None:
        self._columns, self._types = columns, types

    def _is_column(self, node: ast.AST) -> bool:
        return of_columns(node, self._columns)

    # --- calls ---

    def visit_Call(self, node: ast.Call) -> ast.AST:
        before = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(before, ast.Constant) and isinstance(before.value, str) and node.args:
            return self._on_text(before.value, node)
        if len(node.args) == 1 and isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp)):
            whole = self._quantified(node, node.args[0])
            if whole is not None:
                return whole
        kind = self._types(node.args[0]) if node.args else None
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        if node.keywords:
            return node  # what is known takes none: without them it would be something else
        if isinstance(node.func, ast.Attribute) and self._is_column(node.func.value):
            return self._method(node, node.func)
        if any(self._is_column(argument) for argument in node.args):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) == 1:
                return made(_LOOKUP, node.func.value, *node.args)
            return self._function(node, kind)
        return node

    def _method(self, node: ast.Call, function: ast.Attribute) -> ast.AST:
        match node.args:
            case [ast.Constant(value=str(text))] if function.attr == "split":
                return made("F.split({0}, {1})", function.value, ast.Constant(re.escape(text)))
            case [ast.Constant(value=str(text)), ast.Constant(value=int(most))] if function.attr == "split":
                return made("F.split({0}, {1}, {2})", function.value, ast.Constant(re.escape(text)), ast.Constant(most + 1))
            case [ast.Constant(value=str(text))] if function.attr in ("removeprefix", "removesuffix"):
                pattern = f"^{re.escape(text)}" if function.attr == "removeprefix" else f"{re.escape(text)}$"
                return made("F.regexp_replace({0}, {1}, {2})", function.value, ast.Constant(pattern), ast.Constant(""))
        if function.attr == "hexdigest" and not node.args:
            return function.value
        template = METHODS.get((function.attr, len(node.args)))
        return node if template is None else made(template, function.value, *node.args)

    def _function(self, node: ast.Call, kind: str | None) -> ast.AST:
        name = ast.unparse(node.func)
        short = name.rpartition(".")[2]
        arguments = node.args
        if short in ("match", "search", "fullmatch") and name.startswith("re.") and len(arguments) == 2:
            pattern = constant_text(arguments[0])
            if pattern is None:
                return made("{1}.rlike({0})", *arguments)
            begin, end = "^" if short != "search" else "", "$" if short == "fullmatch" else ""
            whole = f"{begin}(?:{pattern}){end}" if "|" in pattern else f"{begin}{pattern}{end}"
            return made("{0}.rlike({1})", arguments[1], ast.Constant(whole))
        if name in ("min", "max") and len(arguments) > 1:
            which = "F.least" if name == "min" else "F.greatest"
            return ast.Call(made(which), [literal(argument, self._columns) for argument in arguments], [])
        if name == "len" and kind is not None and kind.startswith(("array", "map")):
            return made("F.size({0})", *arguments)
        if name.startswith("math.") and (short, len(arguments)) in FUNCTIONS:
            name = short
        names = (name, ".".join(name.split(".")[-2:]))
        template = next((FUNCTIONS[each, len(arguments)] for each in names if (each, len(arguments)) in FUNCTIONS), None)
        return node if template is None else made(template, *arguments)

    def _on_text(self, text: str, node: ast.Call) -> ast.AST:
        """``", ".join(v)`` and ``"{}!".format(v)``."""
        assert isinstance(node.func, ast.Attribute)
        self.generic_visit(node)
        if node.func.attr == "join" and len(node.args) == 1:
            whole = node.args[0]
            if isinstance(whole, (ast.List, ast.Tuple)):
                joined = [literal(part, self._columns) for part in whole.elts]
                return ast.Call(made("F.concat_ws"), [ast.Constant(text), *joined], [])
            return made("F.array_join({0}, {1})", whole, ast.Constant(text)) if self._is_column(whole) else node
        if node.func.attr == "format" and any(self._is_column(argument) for argument in node.args):
            pattern = _java_pattern(text)
            return node if pattern is None else ast.Call(made("F.format_string"), [ast.Constant(pattern), *node.args], [])
        return node

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
        if len(node.generators) > 1 or not self._is_column(clause.iter):
            return self.generic_visit(node)
        for condition in clause.ifs:
            kept = ast.comprehension(target=clause.target, iter=clause.iter, ifs=[], is_async=0)
            clause.iter = self._each("F.filter", kept, condition)
        if ast.unparse(node.elt) == ast.unparse(clause.target):
            return clause.iter
        return self._each("F.transform", clause, node.elt)

    visit_GeneratorExp = visit_ListComp  # type: ignore[assignment]  # noqa: N815  # the same, where it is drawn from

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if not self._is_column(node.test):
            return self.generic_visit(node)
        test, body, other = self.visit(node.test), self.visit(node.body), self.visit(node.orelse)
        return made("F.when({0}, {1}).otherwise({2})", test, body, other)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if not self._is_column(node):
            return self.generic_visit(node)
        values = [self.visit(value) for value in node.values]
        last = values[-1]
        if isinstance(node.op, ast.Or) and isinstance(last, ast.Constant) and not isinstance(last.value, bool):
            return ast.Call(made("F.coalesce"), [literal(value, self._columns) for value in values], [])
        sign = " & " if isinstance(node.op, ast.And) else " | "
        return ast.parse(sign.join(f"({ast.unparse(value)})" for value in values), mode="eval").body

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return made("~({0})", node.operand) if isinstance(node.op, ast.Not) and self._is_column(node.operand) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if not self._is_column(node):
            return self.generic_visit(node)
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
            if self._is_column(left):
                listed = ast.List(right.elts) if isinstance(right, (ast.Tuple, ast.Set)) else made("[*{0}]", right)
                return made(no + "{0}.isin({1})", left, right if isinstance(right, ast.List) else listed)
            kind = self._types(right) or ""
            if kind.startswith("array"):
                return made(no + "F.array_contains({0}, {1})", right, left)
            return made(no + ("F.map_contains_key({0}, {1})" if kind.startswith("map") else "{0}.contains({1})"), right, left)
        return ast.Compare(left, [sign], [right])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.op, ast.Mod) and (pattern := constant_text(node.left)) is not None:
            self.generic_visit(node)
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            return ast.Call(made("F.format_string"), [ast.Constant(pattern), *values], [])
        if isinstance(node.op, ast.Add) and self._is_column(node):
            parts = _summands(node)
            if any(constant_text(part) is not None or isinstance(part, ast.JoinedStr) for part in parts):
                return ast.Call(made("F.concat"), [literal(self.visit(part), self._columns) for part in parts], [])
        self.generic_visit(node)
        template = OPERATORS.get(type(node.op))
        return made(template, node.left, node.right) if template is not None and self._is_column(node) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        is_array = (self._types(node.value) or "").startswith("array")
        self.generic_visit(node)
        if self._is_column(node.slice) and not self._is_column(node.value):
            return made(_LOOKUP, node.value, node.slice)
        if not isinstance(node.slice, ast.Slice) or not self._is_column(node.value):
            return node
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
        pattern, values = "", []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                shape = part.format_spec.values[0] if isinstance(part.format_spec, ast.JoinedStr) else None
                pattern += f"%{_java_format(constant_text(shape) or '')}"
                values.append(self.visit(part.value))
            else:
                pattern += (constant_text(part) or "").replace("%", "%%")
        return ast.Call(made("F.format_string"), [ast.Constant(pattern), *values], [])

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


def _java_pattern(text: str) -> str | None:
    """The pattern of ``str.format`` as that of ``F.format_string``; None if it takes more than arguments by place."""
    pattern = ""
    for plain, name, shape, _ in Formatter().parse(text):
        pattern += plain.replace("%", "%%")
        if name is not None:
            if not re.fullmatch(r"\d*", name):
                return None
            pattern += (f"%{int(name) + 1}$" if name else "%") + _java_format(shape or "")
    return pattern


def _java_format(shape: str) -> str:
    return shape if re.fullmatch(r"[-+0 #]*\d*(\.\d+)?[dfexs]", shape) else "s"


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]
