"""`tidemill new` makes a project that runs, and `tidemill try` shows what a program makes of a few records."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from tests.cli.cli_process import ran_here
from tidemill import Serdes
from tidemill.cli.application_file import load_application
from tidemill.cli.record_lines import TypedRecord, record_of, records_of
from tidemill.cli.try_program import try_program
from tidemill.errors import ConfigError
from tidemill.testing import TopologyTestDriver


def cli(*arguments: object) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    ended = ran_here(*arguments)
    return ended.returncode, ended.stdout, ended.stderr


TOPICS = {
    "orders": (Serdes.string(), Serdes.json("customer string, amount double")),
    "orders-late": (Serdes.string(), Serdes.string()),
    "counts": (Serdes.long(), Serdes.double()),
    "bounds": (Serdes.string(), Serdes.boolean()),
    "ids": (Serdes.uuid(), Serdes.short()),
}
ID = UUID("123e4567-e89b-12d3-a456-426614174000")


# --- new -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--per-record"]])
def test_a_new_project_has_a_program_that_builds(in_folder: Path, options: list[str]) -> None:
    code, text, _ = cli("new", "my-words", *options)
    assert code == 0
    assert "tidemill try app.py records.txt" in text
    topology, config = load_application(in_folder / "my-words" / "app.py", {})
    assert config["application.id"] == "my-words"
    assert list(topology.stores) == ["words"]
    assert ("per_record" in (in_folder / "my-words" / "app.py").read_text()) == bool(options)
    assert all("NAME" not in file.read_text() for file in (in_folder / "my-words").iterdir() if file.is_file())


@pytest.mark.parametrize("command", ["describe", "explain-plan", "try", "run"])
def test_a_column_mistake_ends_every_command_with_2_before_anything_starts(in_folder: Path, command: str) -> None:
    cli("new", "words")
    program = in_folder / "words" / "app.py"
    program.write_text(program.read_text().replace("F.lower(line)", "line.lower()"))
    code, said, text = cli(command, program)
    assert (code, said) == (2, "")
    what = "calls .lower(), which" if sys.version_info >= (3, 11) else "calls what"  # positions in a function begin with 3.11
    assert f"{what} a Column does not have" in text
    assert "app.py, line 1" in text


@pytest.mark.parametrize("command", ["explain-plan", "try"])
@pytest.mark.parametrize("what", ["deserialization", "processing", "production"])
def test_a_handler_that_is_none_is_told_before_spark_starts(
    in_folder: Path, command: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(*_: object, **_named: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("tidemill.testing.driver.shared_session", starts)
    monkeypatch.setattr("tidemill.runtime.instance.machine_jvm.machine_jvm", starts)
    cli("new", "words")
    records = in_folder / "records.txt"
    records.write_text("a line\n")
    given = [in_folder / "words" / "app.py", *([records] if command == "try" else [])]
    code, said, text = cli(command, *given, "--set", f"{what}.exception.handler=no.such:handler")
    assert (code, said) == (2, "")
    assert f"{what}.exception.handler=no.such:handler can't be imported" in text


@pytest.mark.parametrize("name", ["My words", "1st", "", "a" * 70, "ä", "a.b"])
def test_a_name_that_no_project_can_have_is_refused(in_folder: Path, name: str) -> None:
    code, _, text = cli("new", name)
    assert code == 2
    assert "can't be the name of a project: expected small letters" in text
    assert not list(in_folder.iterdir())


def test_what_is_there_is_left_alone(in_folder: Path) -> None:
    (in_folder / "words").mkdir()
    (in_folder / "words" / "mine.txt").write_text("mine")
    code, _, text = cli("new", "words")
    assert (code, [file.name for file in (in_folder / "words").iterdir()]) == (2, ["mine.txt"])
    assert "words is there already; give another name" in text


@pytest.mark.spark
@pytest.mark.parametrize("options", [[], ["--per-record"]])
def test_a_new_project_passes_its_test_and_can_be_tried(spark: SparkSession, in_folder: Path, options: list[str]) -> None:
    cli("new", "words", *options)
    project = in_folder / "words"
    topology, _ = load_application(project / "app.py", {})
    names: dict[str, object] = {}
    code = (project / "test_app.py").read_text().replace("from app import builder", "builder = None")
    exec(compile(code, "test_app.py", "exec"), names)
    drivers: list[TopologyTestDriver] = []
    names["test_words_are_counted"](lambda _: drivers.append(TopologyTestDriver(topology)) or drivers[-1])  # type: ignore[operator]
    drivers[0].close()

    code_of, text, _ = cli("try", str(project / "app.py"), str(project / "records.txt"))
    assert code_of == 0
    assert "topic word-counts (8)\n  time  key       value\n" in text  # of each word the last count of a batch
    assert text.rstrip().endswith("  to        2")
    assert "store words (8)\n  key       value\n  --------  -----\n  be        2\n" in text


# --- the lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('orders: ada => {"customer": "a", "amount": 2}', TypedRecord("orders", "ada", {"customer": "a", "amount": 2.0}, None)),
        ("orders: ada => null", TypedRecord("orders", "ada", None, None)),
        ("orders-late: a: b", TypedRecord("orders-late", None, "a: b", None)),
        ("@60000 orders-late: null => x", TypedRecord("orders-late", None, "x", 60_000)),
        ("  orders-late:k=>v => w ", TypedRecord("orders-late", "k", "v => w", None)),
        ("counts: 7 => 1.5", TypedRecord("counts", 7, 1.5, None)),
        (f"ids: {ID} => 5", TypedRecord("ids", ID, 5, None)),
        (f'ids: "{ID}" => 5', TypedRecord("ids", ID, 5, None)),
    ],
)
def test_a_line_is_a_record(line: str, record: TypedRecord) -> None:
    assert record_of(line, TOPICS, "line 1") == record


def test_with_one_topic_a_line_is_a_value() -> None:
    only = {"lines": (Serdes.string(), Serdes.string())}
    lines = ["# a remark", "", "hello: world", "k => v"]
    assert list(records_of(lines, only, "in.txt")) == [
        TypedRecord("lines", None, "hello: world", None), TypedRecord("lines", "k", "v", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("hello", "line 3: the program reads bounds, .*, orders-late, and 'hello' names none of them; write [@TIME]"),
        ("counts: x => 1", "in.txt, line 3: key: 'x' can't be read by the serde long (.*); expected a whole number"),
        ("counts: 1 => one", "in.txt, line 3: value: 'one' can't be read by the serde double (.*); expected a number"),
        ("counts: 99999999999999999999 => 1", "key: '99999999999999999999' can't be read by the serde long"),
        ("ids: ada => 5", "in.txt, line 3: key: 'ada' can't be read by the serde uuid (.*); expected a UUID"),
        (f"ids: {ID} => x", "in.txt, line 3: value: 'x' can't be read by the serde short (.*); expected a whole number"),
        ("orders: {", r"value: '{' can't be read by the serde json.*expected a JSON object of struct<"),
        ('orders: {"amount": "two"}', "can't be read by the serde json"),
        ("@soon orders: {}", "in.txt, line 3: '@soon' is no time; expected @ and the ms since the epoch"),
        ("@5", "'@5' is no time"),
        ("@99999999999999999999 orders: {}", "'@99999999999999999999' is no time"),
        (f"@{'9' * 5_000} orders: {{}}", r"'@9{249}\.\.\. \(5001 characters\)' is no time"),
        (f"bounds: {'[' * 100_000}", r"value: '\[{250}\.\.\. \(100000 characters\)' can't be read by the serde"),
    ],
)
def test_a_line_that_is_no_record_is_told_with_its_place(line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("[@TIME]", r"\[@TIME\]")):
        list(records_of(["", "# ", line], TOPICS, "in.txt"))


# --- try -------------------------------------------------------------------------------------------------------------

PROGRAM = """
from datetime import timedelta
from pyspark.sql import functions as F
from tidemill import Serdes, StreamsBuilder, TimeWindows

text = Serdes.string()
builder = StreamsBuilder()
lines = builder.stream("lines", key=text, value=text)
lines.map_values(lambda line: F.upper(line)).to("shouted")
lines.to(lambda key, value, record: "short" if len(value) < 4 else "long")
lines.group_by_key().windowed_by(TimeWindows.of_size(timedelta(seconds=10))).count(store="windows")
builder.table("names", key=text, value=Serdes.json("name string"), store="names")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path / "app.py"


@pytest.mark.spark
def test_topics_and_stores_are_shown_as_tables(spark: SparkSession, program: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.txt"
    records.write_text('lines: a => hello\n@12000 lines: a => b\nnames: 1 => {"name": "ada"}\n')
    code, text, errors = cli("try", str(program), str(records))
    assert code == 0, errors
    assert text == (
        "topic shouted (2)\n"
        "  time   key  value\n"
        "  -----  ---  -----\n"
        "  0      a    HELLO\n"
        "  12000  a    B\n"
        "\n"
        "topic long (1)\n  time  key  value\n  ----  ---  -----\n  0     a    hello\n"
        "\n"
        "topic short (1)\n  time   key  value\n  -----  ---  -----\n  12000  a    b\n"
        "\n"
        "store names (1)\n  key  value\n  ---  ---------------\n  1    {'name': 'ada'}\n"
        "\n"
        "store windows (1)\n"  # the first has ended, and with it its retention
        "  key  from   to     value\n"
        "  ---  -----  -----  -----\n"
        "  a    10000  20000  1\n"
    )


@pytest.mark.spark
def test_typed_records_are_answered_one_by_one_and_a_wrong_one_is_told(
    spark: SparkSession, program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("lines: hello\nnowhere\n\nlines: k => you\n"))
    try_program(program)
    out, err = capsys.readouterr()
    assert out.startswith("Records as [@TIME] [TOPIC:] [KEY =>] VALUE, one a line; Ctrl-D ends. Topics read:\n  lines: key s")
    assert "  shouted: null => HELLO\n  long: null => hello\n  shouted: k => YOU\n  short: k => you\n" in out
    assert "line 2: the program reads lines, names, and 'nowhere' names none of them" in err
    assert out.rstrip().endswith("k    0     10000  1")


def test_a_wrong_line_spoils_the_file_before_spark_starts(program: Path, tmp_path: Path) -> None:
    (tmp_path / "records.txt").write_text("lines: fine\nwrong\n")
    code, text, errors = cli("try", str(program), str(tmp_path / "records.txt"))
    assert (code, text) == (2, "")
    assert "records.txt, line 2: the program reads lines, names" in errors
    assert "starting Spark" not in errors


def test_a_program_without_a_topic_to_read_is_told_before_spark_starts(in_folder: Path) -> None:
    (in_folder / "app.py").write_text(
        "import re\nfrom tidemill import Serdes, StreamsBuilder\nbuilder = StreamsBuilder()\n"
        "builder.stream(re.compile('a.*'), key=Serdes.string(), value=Serdes.string()).to('out')\n"
    )
    (in_folder / "records.txt").write_text("a: fine\n")
    code, _, errors = cli("try", "app.py", "records.txt")
    assert code == 2
    assert "the program names no topic to read (a pattern of topics needs a broker: tidemill run)" in errors
    assert "starting Spark" not in errors


@pytest.mark.spark
def test_a_value_may_have_characters_that_begin_a_line_elsewhere(spark: SparkSession, program: Path, tmp_path: Path) -> None:
    (tmp_path / "records.txt").write_text("lines: one\u2028line\n")
    code, text, _ = cli("try", str(program), str(tmp_path / "records.txt"))
    assert code == 0
    assert "ONE\\u2028LINE" in text


def test_standard_input_that_is_no_text_is_told_before_spark_starts(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"lines: \xff\n"), encoding="utf-8"))
    code, _, errors = cli("try", str(program))
    assert code == 2
    assert "standard input: not utf-8 text (invalid start byte); expected records, one a line" in errors
    assert "starting Spark" not in errors


def test_a_byte_order_mark_is_no_part_of_the_first_line(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an export on Windows begins its file with; the first record's key or value had it in front."""
    (tmp_path / "records.txt").write_text("\ufeff@x hello\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeff@x hello\n".encode()), encoding="utf-8"))
    for arguments in ((program, tmp_path / "records.txt"), (program,)):
        code, _, errors = cli("try", *arguments)
        assert code == 2
        assert "line 1: '@x' is no time" in errors


def test_a_file_that_is_not_there_is_told_before_spark_starts(program: Path, tmp_path: Path) -> None:
    code, _, errors = cli("try", str(program), str(tmp_path / "none.txt"))
    assert code == 2
    assert "none.txt: can't be read" in errors
    assert "starting Spark" not in errors
