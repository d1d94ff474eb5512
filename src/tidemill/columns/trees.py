"""Expressions over Columns as Python's syntax trees: what is a Column in one, and new ones, made of templates."""

from __future__ import annotations

import ast

Names = frozenset[str]


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


def text_node(text: str | None) -> ast.expr | None:
    return None if text is None else ast.Constant(text)


def made_with(template: str, value: ast.expr, text: str | None) -> ast.expr | None:
    """The expression of a template with a value and a text, if there is one."""
    return None if text is None else made(template, value, ast.Constant(text))


def elements_of(of: ast.expr, kind: str | None) -> ast.expr:
    """What Python goes through: of a mapping its keys."""
    return made("F.map_keys({0})", of) if (kind or "").startswith("map") else of


def summands_of(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*summands_of(node.left), *summands_of(node.right)]
    return [node]
