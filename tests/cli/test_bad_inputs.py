"""Whatever a command is given: one line and exit code 2, never a traceback; 0 or 1 only where the input happens to be usable.

No JVM and no broker: every case is refused before one is asked, or the application names no broker.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.cli.cli_process import ran_here
from tidemill.cli.main import main
from tidemill.config.streams_config import StreamsConfig
from tidemill.config.texts import load_toml
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.printable import printable
from tidemill.state.directory import StateDirectory

SCENARIO = str(Path(__file__).parents[2] / "examples" / "scenarios" / "article.toml")
Fixture = pytest.CaptureFixture[str]
PROGRAM = b"""from tidemill import Serdes, StreamsBuilder
builder = StreamsBuilder()
texts = {"key": Serdes.string(), "value": Serdes.string()}
builder.stream("a", **texts).to("b", **texts)
config = {"application.id": "x"}
"""
CONTENTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 4,
    "nulls": bytes(1_000),
    "deep JSON": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a number of 5,000 digits in JSON": b'{"id": ' + b"9" * 5_000 + b"}",
    "no numbers": b'{"id": NaN, "expected": Infinity, "clients": -Infinity}',
    "a list": b"[1, 2]",
    "a record of another shape": b'{"id": "ha-1", "tasks": null, "clients": 5, "config": [], "rounds": 3}',
    "deep TOML": b"a = " + b"[" * 20_000,
    "a name of 20,000 parts": b".".join([b"a"] * 20_000) + b" = 1",
    "deep tables": b"a = " + b"{b = " * 5_000,
    "a number of 5,000 digits in TOML": b"num.stream.threads = " + b"9" * 5_000,
    "infinite times": b"seed = 1\nhorizon_s = inf\n",
    "times beyond 64 bits": b"horizon_s = 1e300\n",
    "a hundred million tasks": b'[[subtopologies]]\nnumber = 0\npartitions = 100000000\n[[clients]]\nname = "a"\n'
    b'process_id = "00000000-0000-0000-0000-000000000001"\n',
    "deep Python": b"x = " + b"(" * 50_000,
    "Python that ends": b"raise SystemExit(0)",
    "Python without end": b"def f(): f()\nf()",
    "an error without a sentence": b"class E(Exception):\n    def __str__(self): raise ValueError\nraise E()",
    "gzip, cut": gzip.compress(b"{}" * 1_000)[:20],
    "gzip of deep JSON": gzip.compress(b"[" * 1_000_000),
}
PLACES = ("missing", ".", "x" * 5_000, "a\0b", "", "\x1b[31m\n", "\udcff\udcfe", "/dev/zero", "/dev/null")
BY_FILE: tuple[Callable[[str], list[str]], ...] = (
    lambda file: ["describe", file],
    lambda file: ["explain-plan", file],
    lambda file: ["run", file],
    lambda file: ["reset", file],
    lambda file: ["assign", "replay", file],
    lambda file: ["assign", "replay", file, "--print"],
    lambda file: ["assign", "explain", file],
    lambda file: ["assign", "simulate", file],
    lambda file: ["assign", "sweep", file, "--vary", "seed=1..2"],
    lambda file: ["state", "ls", file],
    lambda file: ["state", "show", file],
    lambda file: ["run", "program.py", "--config", file],
    lambda file: ["reset", "program.py", "--config", file],
    lambda file: ["explain-plan", "program.py", "--config", file],
    lambda file: ["group", "describe", "--group", "g", "--bootstrap-server", "none", "--config", file],
    lambda file: ["group", "members", "--group", "g", "--bootstrap-server", "none", "--app", file],
    lambda file: ["top", "no address", "--config", file],
    lambda file: ["broker", "start", "--protocol", "none", "--users", file],
)
TEXTS = (
    "", " ", "x" * 10_000, "9" * 5_000, "-1", "nan", "inf", "1e400", "\0", "\x1b[31m", "a\nb", "\udcff", "=", "a=", "=b", "..",
    "seed=1..1000000000000", "threads=1..10..0", "threads=99999999999", "restore_records_per_s=nan", "P99999999999999999999D",
    "P9999999D", "0001-01-01T00:00:00", "9999-12-31T23:59:59-23:59", "[::1", "host:99999999", "a..b:80", "by_duration:P1",
    "9223372036854775808", "-9223372036854775809", "é", "%s%n",
)  # fmt: skip
VALUES = (10**400, -1, float("nan"), float("inf"), None, [], {}, b"x", True, "by_duration:P" + "9" * 400 + "D")
BY_TEXT: tuple[Callable[[str], list[str]], ...] = (
    lambda text: ["assign", "simulate", SCENARIO, "--compare", text],
    lambda text: ["assign", "simulate", SCENARIO, "--plot", text],
    lambda text: ["assign", "sweep", SCENARIO, "--out", "/none/x", "--vary", text],
    lambda text: ["assign", "explain", SCENARIO, "--task", text],
    lambda text: ["assign", "explain", SCENARIO, "--round", text],
    lambda text: ["assign", "explain", SCENARIO, "--assignor", text],
    lambda text: ["assign", "explain", SCENARIO, "--compatibility", text],
    lambda text: ["assign", "replay", "program.py", "--kind", text],
    *((lambda text, option=option: ["reset", "program.py", f"{option}={text}"]) for option in (
        "--to-datetime", "--by-duration", "--to-offset", "--shift-by", "--input-topics", "--set",
    )),
    *((lambda text, option=option: ["run", "program.py", f"{option}={text}"]) for option in (
        "--set", "--log-level", "--serve", "--state-dir",
    )),
    lambda text: ["explain-plan", "program.py", f"--set={text}"],
    lambda text: ["describe", "program.py", f"--optimization={text}"],
    lambda text: ["group", "describe", "--bootstrap-server", "none", f"--group={text}"],
    lambda text: ["group", "describe", "--group", "g", f"--bootstrap-server={text}"],
    lambda text: ["group", "members", "--group", "g", f"--bootstrap-server={text}"],
    lambda text: ["top", "--once", "--", text],
    lambda text: ["top", "--once", f"--interval={text}", "none"],
    lambda text: ["top", "--once", "--group=g", f"--bootstrap-server={text}"],
    lambda text: ["broker", "start", "--protocol=none", f"--port={text}"],
    lambda text: ["broker", "start", "--acls", f"--mechanism={text}", "--protocol=none"],
    lambda text: ["demo", "--log-level=none", f"--keep-data={text}"],
    lambda text: ["demo-ha", f"--lines={text}", "--none"],
    lambda text: ["state", text],
    lambda text: ["prepare", "--", "x", text],
    lambda text: ["nothing", text],
)  # fmt: skip


def outcome(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code; AssertionError if what is printed is no single printable line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    said = capsys.readouterr().err
    assert isinstance(code, int), arguments
    if said.startswith("tidemill: "):
        assert said.endswith("\n")
        assert said[:-1].isprintable(), "one line, with what is no printable character escaped"
        assert len(said) < 5_000
    elif code == 2:
        assert said.startswith("Usage: "), "typer's own refusal"
    return code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.py").write_bytes(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


GARBAGE = st.binary(max_size=30).map(lambda drawn: b"\x00" + drawn)
"""No text of Python, TOML or JSON holds a NUL; an empty file, or one with a comment, would be settings that are usable."""


@quick
@given(command=st.sampled_from(BY_FILE), content=st.sampled_from(sorted(CONTENTS)) | GARBAGE)
def test_a_file_of_any_content_is_refused_in_one_sentence(
    folder: Path, capsys: Fixture, command: Callable[[str], list[str]], content: str | bytes
) -> None:
    assume(not (content == "empty" and "--config" in command("")))  # settings that are usable, of which there are none
    for name in ("file.py", "file.toml", "file.jsonl"):
        (folder / name).write_bytes(CONTENTS[content] if isinstance(content, str) else content)
        arguments = command(name)
        is_empty_replay = arguments[-1] == "--print"
        assert outcome(arguments, capsys) in ((0, 2) if is_empty_replay else (2,)), arguments


@quick
@given(command=st.sampled_from(BY_FILE), place=st.sampled_from(PLACES))
def test_what_is_no_file_is_refused_in_one_sentence(
    folder: Path, capsys: Fixture, command: Callable[[str], list[str]], place: str
) -> None:
    (folder / "inner").mkdir(exist_ok=True)
    assert outcome(command(place), capsys) == 2


@settings(parent=quick, max_examples=120)
@given(command=st.sampled_from(BY_TEXT), text=st.sampled_from(TEXTS) | st.text(max_size=8))
def test_any_text_for_an_option_is_refused_in_one_sentence_or_usable(
    folder: Path, capsys: Fixture, command: Callable[[str], list[str]], text: str
) -> None:
    usable = (0, 2) if "assign" in command("") or "describe" in command("")[:1] else (2,)
    assert outcome(command(text), capsys) in usable, command(text)


@pytest.mark.parametrize(
    "file",
    ["a folder as data.mdb", "a pipe as data.mdb", "garbage as data.mdb", "a folder as dirty", "garbage as dirty", "nothing"],
)
def test_a_tasks_folder_that_is_no_store_is_said_so(folder: Path, capsys: Fixture, file: str) -> None:
    task = folder / "application" / "1_0"
    task.mkdir(parents=True)
    what, _, name = file.partition(" as ")
    if what == "a folder":
        (task / name).mkdir()
    elif what == "a pipe":
        os.mkfifo(task / name)
    elif name:
        (task / name).write_bytes(b"\xffgarbage" * 1_000)
    for command in ("ls", "show"):
        assert outcome(["state", command, str(task)], capsys) == 1, "as for any state that can't be read"


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from([name for name, field in StreamsConfig.__dataclass_fields__.items() if field.metadata]),
    value=st.sampled_from([*TEXTS, *VALUES]) | st.text(max_size=10),
)
def test_a_setting_of_any_value_is_taken_or_refused(name: str, value: object) -> None:
    setting = StreamsConfig.__dataclass_fields__[name].metadata["name"]
    setting = f"{setting}x" if setting.endswith(".") else setting
    with contextlib.suppress(ConfigError):
        StreamsConfig.of({"application.id": "x", "bootstrap.servers": "h:1", setting: value})


@pytest.mark.parametrize(
    "words",
    [
        ["run", "app.py", "--state-dir", ""], ["run", "app.py", "--serve", " "], ["run", "app.py", "--set", "state.dir="],
        ["state", "ls", ""], ["state", "clean", ""],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_text_is_not_the_current_folder(folder: Path, words: list[str], capsys: Fixture) -> None:
    (folder / "app.py").write_bytes(PROGRAM.replace(b'"x"}', b'"x", "bootstrap.servers": "localhost:1"}'))
    before = set(folder.iterdir())
    assert outcome(words, capsys) == 2
    assert {path for path in folder.iterdir() if path.name != "__pycache__"} == before


@pytest.mark.parametrize("words", [
    ["group", "describe", "--group", ""], ["group", "members", "--group", ""], ["group", "history", "--group", ""],
    ["roll", "--group", ""], ["drain", "localhost:1", "--group", ""], ["top", "--group", ""], ["schema", "infer", ""],
], ids=" ".join)  # fmt: skip
def test_an_empty_name_of_a_group_or_a_topic_is_refused_before_a_client_gets_it(words: list[str]) -> None:
    """librdkafka's consumer ends the process for an empty group."""
    ended = ran_here(*words)
    assert ended.returncode == 2
    assert ended.stderr.startswith(("tidemill: --group is '', expected", "tidemill: '' can't be the name of a topic: it is"))


@pytest.mark.parametrize("state_dir", ["x" * 5_000, "a\0b", "a file", "a file/below", "/dev/null"])
def test_a_state_dir_that_can_not_be_one_is_refused_in_one_sentence(folder: Path, state_dir: str) -> None:
    (folder / "a file").write_bytes(b"")
    with pytest.raises(EnvironmentProblem, match=r"Give a folder that may be written as state\.dir"):
        StateDirectory(Path(state_dir), "x").create()


@pytest.mark.parametrize("offset", ["by_duration:P" + "9" * 400 + "D", "by_duration:P106751991168D"])
def test_a_duration_beyond_64_bits_is_refused(offset: str) -> None:
    with pytest.raises(ConfigError, match="at most 64 bits"):
        StreamsConfig.of({"application.id": "x", "bootstrap.servers": "h:1", "auto.offset.reset": offset})


@pytest.mark.parametrize("content", [name for name in CONTENTS if "TOML" in name or "parts" in name or "tables" in name])
def test_settings_that_are_no_usable_toml_are_refused(content: str) -> None:
    with pytest.raises(ConfigError, match=r"^the settings are not TOML"):
        load_toml(CONTENTS[content].decode())


def test_a_sentence_is_one_line_that_a_terminal_may_show() -> None:
    assert printable("a\x1b[31m\nb\udcffé") == r"a\x1b[31m\nb\udcffé"
    assert printable("x" * 10_000).endswith("(10000 characters)")
