"""The text of a function, and the place in it where it failed, as Python's own syntax tree.

Decides which node of the tree a place in the code is. From Python 3.11 on the interpreter says it to the character; before, and
where a file has changed, what there is of a line. Text that can't be had (a prompt, ``exec``) is none: never an error.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, TracebackType

import py4j
import pyspark

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LIBRARIES = tuple(
    str(path)
    for path in (sysconfig.get_path("stdlib"), *pyspark.__path__, *py4j.__path__, Path(__file__).parent.parent)
)
"""Folders of code that is never the program's."""
_INSTALLED = ("site-packages", "dist-packages")
"""Folders of code that may be the program's, if nothing else is."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line of the program; ``node``: the expression there that failed; ``around``: the nodes around it, the nearest first."""

    file: str
    line: int
    names: dict[str, object]
    """The names of the function with their values there."""
    node: ast.AST | None = None
    around: tuple[ast.AST, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def code_of(function: Callable[..., object]) -> CodeType | None:
    """The code of a function, a method, a partial or an object that is called; None of what is written in C."""
    while hasattr(function, "func") and not hasattr(function, "__code__"):
        function = function.func
    inner = getattr(inspect.unwrap(function), "__func__", function)
    if not hasattr(inner, "__code__") and not isinstance(inner, type):
        inner = type(inner).__call__
    return getattr(inner, "__code__", None)


def where_defined(function: Callable[..., object]) -> SourcePlace | None:
    """File and line of a function; None for those of Python and of libraries."""
    code = code_of(function)
    if code is None or _is_of_library(code.co_filename):
        return None
    return SourcePlace(code.co_filename, code.co_firstlineno, {}, function_node(code))


def where_failed(trace: TracebackType | None) -> SourcePlace | None:
    """The innermost line of the program that a traceback passes; what is below belongs to Python, PySpark or another library."""
    passed: list[TracebackType] = []
    while trace is not None:
        if not _is_of_library(trace.tb_frame.f_code.co_filename):
            passed.append(trace)
        trace = trace.tb_next
    own = [each for each in passed if not _is_installed(each.tb_frame.f_code.co_filename)]
    if not passed:
        return None
    found = (own or passed)[-1]
    code, line = found.tb_frame.f_code, found.tb_lineno
    path = _path_to(code, _span(code, found.tb_lasti))
    return SourcePlace(code.co_filename, line, dict(found.tb_frame.f_locals), path[0] if path else None, tuple(path[1:]))


def raised_by_python(trace: TracebackType | None) -> bool:
    """Was it raised by a function of Python's own, in C or in the standard library, which the program has called?"""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]
    if not files:
        return False
    own = files[-1].startswith(_LIBRARIES[0]) and not _is_installed(files[-1])
    return own or files[-1].startswith("<frozen") or not _is_of_library(files[-1])


def _is_of_library(file: str) -> bool:
    if file.startswith(("<frozen", *_LIBRARIES[1:])):
        return True
    return file.startswith(_LIBRARIES[0]) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return any(folder in Path(file).parts for folder in _INSTALLED)


def function_node(code: CodeType) -> FunctionNode | None:
    """The lambda or function that code was made of; None where several on its line may be it."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [
        node
        for node in _source(code.co_filename).functions
        if code.co_firstlineno in _first_lines(node)
        and (code.co_name == "<lambda>") == isinstance(node, ast.Lambda)
        and tuple(argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)) == names
    ]
    if len(found) > 1:
        spans = [span for span in _spans(code) if span is not None]
        held = [node for node in found if all(_holds(node, span) for span in spans)]
        found = held if spans else [node for node in found if isinstance(node, ast.Lambda) and _compiles_to(node, code)]
    return found[0] if len(found) == 1 else None


def _compiles_to(node: ast.Lambda, code: CodeType) -> bool:
    """True if, compiled alone, it is the same code. Names from functions around it make a difference: then it is not known."""
    alone = compile(ast.Expression(node), code.co_filename, "eval").co_consts[0]
    return all(getattr(alone, part) == getattr(code, part) for part in ("co_code", "co_names", "co_consts"))


def text_of(node: ast.AST) -> str:
    """The node's code on one line."""
    return " ".join(ast.unparse(node).split())


def _first_lines(node: FunctionNode) -> tuple[int, ...]:
    decorators = () if isinstance(node, ast.Lambda) else node.decorator_list
    return (node.lineno, *(decorator.lineno for decorator in decorators))


@dataclass(frozen=True, slots=True)
class _Source:
    """A file's syntax tree, and the functions in it; no tree where it can't be parsed."""

    tree: ast.AST | None
    functions: tuple[FunctionNode, ...]


def _source(file: str) -> _Source:
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=2)  # a program asks once for each of its functions
def _parsed(text: str) -> _Source:
    try:
        tree = ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # another text than the one that runs
        tree = None
    return _Source(tree, () if tree is None else tuple(node for node in ast.walk(tree) if isinstance(node, FunctionNode)))


_Span = tuple[int, int, int, int]
"""First and last line, first and last column (in bytes)."""


def _spans(code: CodeType) -> Iterator[_Span | None]:
    if not hasattr(code, "co_positions"):  # Python 3.10
        return
    for first, last, begin, end in code.co_positions():
        known = None not in (first, last, begin, end) and (begin, end) != (0, 0)
        yield (first, last, begin, end) if known else None


def _span(code: CodeType, at: int) -> _Span | None:
    return next(itertools.islice(_spans(code), at // 2, None), None)


def _holds(node: ast.AST, span: _Span) -> bool:
    first, last, begin, end = span
    if not isinstance(node, (ast.expr, ast.stmt)) or node.end_lineno is None or node.end_col_offset is None:
        return False
    return (node.lineno, node.col_offset) <= (first, begin) and (last, end) <= (node.end_lineno, node.end_col_offset)


def _path_to(code: CodeType, span: _Span | None) -> list[ast.AST]:
    """The smallest node of a span and the nodes around it; without a span the function."""
    tree = _source(code.co_filename).tree
    if tree is None:
        return []
    if span is None:
        node = function_node(code)
        return [] if node is None else [node]
    path: list[ast.AST] = []
    here: ast.AST | None = tree
    while here is not None:
        path.insert(0, here)
        here = next((child for child in _children(here) if _holds(child, span)), None)
    return path[:-1]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Expressions and statements; of what is neither (arguments, keywords, comprehensions' clauses) theirs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.expr, ast.stmt)):
            yield child
        else:
            yield from _children(child)
