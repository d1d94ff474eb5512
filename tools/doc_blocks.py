"""Code in the pages of the documentation: found, and checked without running anything outside the process.

Decides what of a page is a program and what is wrong with it. Python is parsed, what it imports from Tidemill must exist, and
what builds a topology is built and described; commands must name commands and options that there are, and targets of
the Makefile. Running the tutorial's commands is left to `tools/run_tutorial.py`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_DIRECTIVE = re.compile(r"<!-- run: (.*?) -->")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: ``line`` is that of its first line, from 1; ``directives`` what the page says to the runner before it."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    directives: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"docs/{self.page}, line {self.line}"


class BlockError(Exception):
    """Code on a page is wrong; the message says where and why."""


def fenced(page: str, text: str) -> list[Block]:
    """The blocks in fences, in order; directives after the last one come as a block without language."""
    blocks, end = [], 0
    for found in _FENCE.finditer(text):
        info = found["info"].strip()
        title = _TITLE.search(info)
        blocks.append(Block(
            page=page, line=text.count("\n", 0, found.start("text")) + 1, language=info.split(" ")[0],
            title=title and title[1], text=textwrap.dedent(found["text"]),
            directives=tuple(_DIRECTIVE.findall(text, end, found.start())),
        ))
        end = found.end()
    if last := tuple(_DIRECTIVE.findall(text, end)):
        blocks.append(Block(page=page, line=text.count("\n", 0, end) + 1, language="", title=None, text="", directives=last))
    return blocks


def blocks_of(page: str, text: str) -> list[Block]:
    """All blocks of a page, in order."""
    return sorted([*fenced(page, text), *indented(page, text)], key=lambda block: block.line)


def indented(page: str, text: str) -> list[Block]:
    """Blocks of lines that stand four spaces to the right after an empty line or a heading, fences and lists left out.

    Those that import something are Python.
    """
    plain = _FENCE.sub(lambda found: "\n" * found.group().count("\n"), text)
    blocks: list[Block] = []
    current: list[str] = []
    before, began, in_list = "", 0, False
    for number, line in enumerate([*plain.split("\n"), "end"], start=1):
        if line.startswith("    ") and not in_list and (current or not before or before.startswith("#")):
            began = began if current else number
            current.append(line[4:])
        elif line and current:
            block = "\n".join(current).rstrip()
            language = "python" if re.search(r"^(from \S+ )?import ", block, re.MULTILINE) else ""
            blocks.append(Block(page=page, line=began, language=language, title=None, text=block))
            current = []
        elif current:
            current.append("")
        if line and not line.startswith(" "):
            in_list = re.match(r"([-*]|\d+\.) ", line) is not None
        before = line
    return blocks


# --- programs ---


def check_python(blocks: list[Block]) -> list[str]:
    """Checks all Python of a page, in order; the names of the topologies that were built. BlockError says what is wrong.

    A block that makes a builder begins a program; the ones after it go on with its names. Blocks that talk to a broker, or need a
    Spark session, are parsed and their imports looked up, not run. The topology of a block with the directive ``refused`` must be
    refused.
    """
    built: list[str] = []
    with tempfile.TemporaryDirectory() as temporary, _importing_from(temporary):
        names: dict[str, object] = {}
        for block in blocks:
            if block.language != "python":
                continue
            tree = _parsed(block)
            _look_up_imports(block, tree)
            if "refused" in block.directives:
                _check_refused(block)
                continue
            if block.title is not None and block.title.endswith(".py"):
                (Path(temporary) / block.title).write_text(block.text, encoding="utf-8")
            if _talks(tree):
                continue
            if "StreamsBuilder()" in block.text or "TopologyBuilder(" in block.text:
                names = {"__name__": "page"}
            elif "builder" not in names:
                continue  # a fragment of no program
            _run(block, names)
            built.append(_described(block, names))
    return built


def _parsed(block: Block) -> ast.Module:
    try:
        return ast.parse(block.text)
    except SyntaxError as error:
        raise BlockError(f"{block.where}: {error.msg} in its line {error.lineno}: {(error.text or '').strip()}") from None


def _look_up_imports(block: Block, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "tidemill":
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    raise BlockError(f"{block.where}: {node.module} has no {alias.name}")


_OUTSIDE = {"confluent_kafka", "requests", "urllib", "http", "faust", "quixstreams"}
_RUNNING = {"KafkaStreams", "TopologyTestDriver", "EmbeddedBroker", "SparkSession", "SchemaRegistry"}


def _talks(tree: ast.Module) -> bool:
    """Whether running it would reach a broker, a server or Spark, or needs what this environment lacks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _OUTSIDE:
            return True
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] in _OUTSIDE for alias in node.names):
            return True
        if isinstance(node, ast.Name) and (node.id in _RUNNING or node.id == "streams"):
            return True
    return False


def _run(block: Block, names: dict[str, object]) -> None:
    try:
        exec(compile(block.text, f"docs/{block.page}", "exec", dont_inherit=True), names)
    except Exception as error:
        raise BlockError(f"{block.where}: {type(error).__name__}: {error}") from error


def _check_refused(block: Block) -> None:
    """A program that the page shows as a mistake must not build."""
    names: dict[str, object] = {"__name__": "page"}
    _run(block, names)
    try:
        _described(block, names)
    except BlockError:
        return
    raise BlockError(f"{block.where}: the page says that its topology is refused, and it is not")


def _described(block: Block, names: dict[str, object]) -> str:
    builder = names.get("topology") or names["builder"]
    try:
        topology = builder.build() if hasattr(builder, "build") else builder
        topology.describe()  # type: ignore[attr-defined]
    except Exception as error:
        raise BlockError(f"{block.where}: its topology is refused: {error}") from error
    return block.title or block.where


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    before = set(sys.modules)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                del sys.modules[name]


# --- commands ---


def check_commands(blocks: list[Block], options: dict[tuple[str, ...], set[str]], targets: set[str]) -> int:
    """Checks the lines that run ``tidemill`` or ``make``; how many there were. BlockError says what is wrong with one.

    ``options`` has every command's options by its path, without ``tidemill``; ``targets`` those of the Makefile.
    """
    checked = 0
    for block in blocks:
        if block.language not in ("", "console", "sh", "bash", "shell"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            command = re.split(r"\s{2,}", line.strip().removeprefix("$ "))[0]  # what follows at a distance explains it
            if command.startswith("tidemill "):
                _check_tidemill(block, command, options)
            elif command.startswith("make "):
                _check_make(block, command, targets)
            else:
                continue
            checked += 1
    return checked


def _check_tidemill(block: Block, command: str, options: dict[tuple[str, ...], set[str]]) -> None:
    words = [word for word in _words(command)[1:] if not word.startswith("[")] if "[" in command else _words(command)[1:]
    path: tuple[str, ...] = ()
    for word in words:
        if any(known[: len(path) + 1] == (*path, word) for known in options):
            path = (*path, word)
        else:
            break
    if path == () and words and words[0] in ("--version", "--help"):
        return
    if path not in options:
        alternatives = words[len(path)] if len(words) > len(path) else ""
        if "|" in alternatives and all((*path, one) in options for one in alternatives.split("|")):
            return
        raise BlockError(f"{block.where}: there is no command `{' '.join(('tidemill', *words[: len(path) + 1]))}`")
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", command):
        if option not in options[path] | {"--help"}:
            raise BlockError(f"{block.where}: `tidemill {' '.join(path)}` has no option {option}")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


def _check_make(block: Block, command: str, targets: set[str]) -> None:
    for word in _words(command)[1:]:
        if "=" not in word and not word.startswith("[") and word not in targets:
            raise BlockError(f"{block.where}: the Makefile has no target {word}")


def make_targets(makefile: str) -> set[str]:
    rules = re.findall(r"^([a-zA-Z][\w -]*):(?!=)", makefile, re.MULTILINE)
    return {name for rule in rules for name in rule.split()}
