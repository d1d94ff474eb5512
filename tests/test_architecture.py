"""What holds for the whole source tree: who may import whom, and how modules are written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tidemill"
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 500
MOST_CHARACTERS = int(re.findall(r"^line-length = (\d+)", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0])
MAY_READ_THE_ENVIRONMENT = {
    "spark/launch/jvm_process.py": "PySpark takes the address of its JVM from there",
    "spark/launch/session.py": "Spark's settings may lie in a folder that it names",
    "kafka/security/config_providers.py": "${env:NAME} in a setting is a reference that the user has written",
    "runtime/instance/application.py": "a script that starts an application has no cli above it",
    "testing/shared_session.py": "nor has a test",
    "embedded/broker.py": "nor has a test that starts a broker",
    "spark/launch/fork_server.py": "a forked process takes over the environment that Spark gives it",
    "spark/launch/worker_daemon.py": "Spark tells it by its environment where the server is",
}
TOO_VAGUE = {"utils", "util", "common", "helpers", "helper", "base", "misc"}


def _name(module: Path) -> str:
    return str(module.relative_to(SOURCE))


TEXTS = {module: module.read_text() for module in MODULES}
QUOTED = re.compile(r'"""(.*?)"""', re.DOTALL)
QUOTED_NAME = re.compile(r"``(?:[a-z_.]+\.)?(_?[a-z]+(?:_[a-z]+)+)``")
NAMES_OF_OTHERS = {"on_send", "split_pattern", "topology__1_0"}  # librdkafka's interceptor, pyarrow's function, a task id
DOCSTRING = re.compile(r'(\s*#[^\n]*\n|\s+)*r?"""\s*\S')


def _trees_with(*words: str) -> Iterator[tuple[Path, ast.Module]]:
    """Only the modules that have one of the words: to parse all takes a second."""
    return ((module, ast.parse(text, str(module))) for module, text in TEXTS.items() if any(word in text for word in words))


def test_imports_go_down_only_and_pure_packages_stay_pure() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kept, 0 broken" in done.stdout


def test_every_module_says_what_it_decides() -> None:
    silent = [_name(module) for module, text in TEXTS.items() if text.strip() and not DOCSTRING.match(text)]
    assert silent == []  # an empty __init__ decides nothing


def test_docstrings_name_only_what_exists() -> None:
    """A renamed function or module must not live on in the docstring of another."""
    docstrings = {module: " ".join(QUOTED.findall(text)) for module, text in TEXTS.items()}
    code = " ".join(QUOTED.sub("", text) for text in TEXTS.values())
    known = set(re.findall(r"\w+", code)) | {module.stem for module in (*MODULES, *ROOT.glob("tests/**/*.py"))} | NAMES_OF_OTHERS
    named = [(module, name) for module, text in docstrings.items() for name in QUOTED_NAME.findall(text)]
    assert len(named) > 100  # the search finds names at all
    assert [f"{_name(module)}: {name}" for module, name in named if name not in known] == []


def test_no_module_is_too_long_or_too_vague() -> None:
    lines = {_name(module): text.count("\n") for module, text in TEXTS.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    assert [name for name in lines if Path(name).stem in TOO_VAGUE] == []


def test_no_line_is_too_long() -> None:
    long = [
        f"{_name(module)}:{number}"
        for module, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MOST_CHARACTERS and "noqa: E501" not in line
    ]
    assert long == []


def _reads_of_the_environment(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr in ("environ", "getenv", "environb")
        ):
            yield node.lineno


def test_the_environment_is_read_in_cli_only() -> None:
    found = [
        f"{_name(module)}:{line}"
        for module, tree in _trees_with("environ", "getenv")
        if module.parent != SOURCE / "cli" and _name(module) not in MAY_READ_THE_ENVIRONMENT
        for line in _reads_of_the_environment(tree)
    ]
    assert found == []


def test_every_event_that_is_logged_is_a_log_event() -> None:
    """A line that is formatted by hand would lose its fields in JSON."""
    by_hand = [
        f"{_name(module)}:{node.lineno}"
        for module, tree in _trees_with("event=")
        if _name(module) != "log_format.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("event=")
    ]
    assert by_hand == []
