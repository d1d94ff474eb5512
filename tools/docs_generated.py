"""Pages of the documentation that are made of something else: settings of the code, commands of the CLI, files of the repository.

Decides their contents; `tools/docs_site.py` decides where they stand. Nothing is written into docs/.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def pages(root: Path) -> dict[str, str]:
    """Path within docs/ -> Markdown, with links as they are in the file that it is made of."""
    made = {page: (root / file).read_text(encoding="utf-8") for file, page in _copied(root).items()}
    for example in _examples(root):
        made[_example_page(example)] = _example(example)
    made["reference/settings.md"] = settings_page()
    made["reference/command-line.md"] = command_line_page()
    return made


def made_of(root: Path) -> dict[str, str]:
    """File of the repository -> the page that is made of it."""
    examples = {example.relative_to(root).as_posix(): _example_page(example) for example in _examples(root)}
    return {**_copied(root), **examples, "examples": next(iter(examples.values()))}


def _copied(root: Path) -> dict[str, str]:
    """Files that are pages as they are, and where they stand as such."""
    deploy = sorted(path.relative_to(root).as_posix() for path in (root / "deploy").rglob("*.md"))
    pages = {
        "ARCHITECTURE.md": "architecture.md",
        "CONTRIBUTING.md": "contributing/index.md",
        "CHANGELOG.md": "changelog.md",
        "benchmarks/RESULTS.md": "benchmarks/results.md",
    }
    return {**pages, **{file: file for file in deploy}}


# --- examples ---


def _examples(root: Path) -> list[Path]:
    return sorted((root / "examples").glob("*.py"))


def _example_page(example: Path) -> str:
    return f"examples/{example.stem.replace('_', '-')}.md"


def _example(example: Path) -> str:
    source = example.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or example.stem
    title = docstring.splitlines()[0].rstrip(".")
    return f"# {title}\n\n`examples/{example.name}`:\n\n```python\n{source.rstrip()}\n```\n"


# --- settings ---


def settings_page() -> str:
    """Every setting with its attribute, default and meaning, from `tidemill.config.streams_config`."""
    from dataclasses import fields

    from tidemill.config.streams_config import StreamsConfig, setting_table

    attributes = {field.metadata["name"]: field.name for field in fields(StreamsConfig) if field.metadata}
    lines = [
        "# Settings from A to Z",
        "",
        "This page is for those who know a setting's name: all of them, generated from `StreamsConfig`. A name that ends in `*`",
        "is a prefix.",
        "[Configuration](../configuration.md) has them by subject, with their sources and the settings of Kafka's clients.",
        "",
        "| setting | attribute of `StreamsConfig` | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, default, meaning in sorted(setting_table()):
        shown = f"`{default}`" if default else ""
        star = "*" if name.endswith(".") else ""
        lines.append(f"| `{name}{star}` | `{attributes[name]}` | {shown} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


# --- the command line ---


def command_line_page() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    lines = [
        "# The command line",
        "",
        "This page is for those who look up a command: every command of `tidemill`, as `tidemill COMMAND --help` prints it.",
        "Exit codes: 0; 1 a run that failed; 2 a mistake in the program, the usage, the settings or the environment; 130 after",
        "Ctrl-C.",
    ]
    for path, command in commands():
        lines += ["", f"## {' '.join(path)}", "", _sentence(command.help or ""), ""]
        rows = [_parameter(parameter) for parameter in command.params if not parameter.hidden]
        if rows:
            lines += ["| | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)]
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its path: ``("tidemill", "broker", "start")``."""
    import typer

    from tidemill.cli import main

    yield from _below(("tidemill",), typer.main.get_command(main._app([])))


def _below(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name in sorted(children):
        yield from _below((*path, name), children[name])


def _parameter(parameter: Any) -> tuple[str, str]:
    text = _sentence(parameter.help or "")
    if "Argument" in type(parameter).__name__:
        return parameter.name.upper(), text
    default = parameter.default
    if default not in (None, False, (), [], "") and not callable(default):
        text += f" Default: `{getattr(default, 'value', default)}`."
    value = "" if parameter.is_flag else f" {parameter.metavar or _TYPES.get(parameter.type_descriptor.annotation, 'TEXT')}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value, text.strip()


_TYPES = {int: "NUMBER", float: "NUMBER", Path: "PATH"}


def _sentence(text: str) -> str:
    shown = " ".join(text.replace("\b", "").split())
    return re.sub(r"([|\[\]<])", r"\\\1", shown)  # or it is a cell's end, a link or a tag
