"""``tidemill new NAME``: a project that runs: a program, a test of it, records to try it with, settings and a page.

Decides what is in it. What is written is meant to be changed; nothing of it is read by Tidemill but the program and its settings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from tidemill.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")

_COLUMNS = '''"""Counts the words of a topic of lines. Functions get PySpark Columns: they are expressions, for Spark."""

from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder

config = {"application.id": "NAME", "bootstrap.servers": "localhost:9092"}
text = Serdes.string()
builder = StreamsBuilder()

(
    builder.stream("lines", key=text, value=text)
    .flat_map_values(lambda line: F.split(F.lower(line), "[^a-z]+"))
    .filter(lambda key, word: word != "")
    .group_by(lambda key, word: word, key=text, value=text)
    .count(store="words")
    .to_stream()
    .to("word-counts", key=text, value=Serdes.long())
)
'''
_PER_RECORD = '''"""Counts the words of a topic of lines. Functions are plain Python, called with the values of each record."""

import re

from tidemill import Serdes, StreamsBuilder, per_record

config = {"application.id": "NAME", "bootstrap.servers": "localhost:9092"}
text = Serdes.string()
builder = StreamsBuilder()


def words(line: str | None) -> list[str]:
    return re.findall("[a-z]+", (line or "").lower())


(
    builder.stream("lines", key=text, value=text)
    .flat_map_values(per_record(words, serde=text))
    .group_by(per_record(lambda key, word: word, serde=text), value=text)
    .count(store="words")
    .to_stream()
    .to("word-counts", key=text, value=Serdes.long())
)
'''
_TEST = '''"""`pytest` runs the program on its real plan, without a broker; the fixture comes with Tidemill."""

from app import builder
from tidemill import Serdes


def test_words_are_counted(topology_test_driver):
    driver = topology_test_driver(builder)
    lines = driver.create_input_topic("lines", Serdes.string(), Serdes.string())
    counts = driver.create_output_topic("word-counts", Serdes.string(), Serdes.long())

    lines.pipe_value("To be, or not to be")

    assert counts.read_key_values_to_dict() == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert driver.store("words").get("be")[0] == 2
'''
_RECORDS = """# One record a line: [@TIME] [TOPIC:] [KEY =>] VALUE
To be, or not to be
hamlet => that is the question
"""
_SETTINGS = """# Settings of Kafka Streams and of Tidemill; they win over those of app.py.
"num.stream.threads" = 1
"""
_README = """# NAME

    tidemill try app.py records.txt      what the program makes of a few records, without a broker
    pytest                               its test
    tidemill describe app.py             its topology

With a broker (`tidemill broker start`, or yours, by its address in app.py) and the topics lines and word-counts:

    tidemill run app.py --config settings.toml
"""
_FILES = {"test_app.py": _TEST, "records.txt": _RECORDS, "settings.toml": _SETTINGS, "README.md": _README}


def new_project(
    name: Annotated[str, typer.Argument(help="Name of the folder and application.id.")],
    per_record: Annotated[bool, typer.Option("--per-record", help="Use functions of Python values instead of Columns.")] = False,
) -> None:
    """Create a project: a program, its test and some records."""
    folder = Path(name)
    if not _NAME.match(folder.name):
        raise ConfigError(
            f"{folder.name!r} can't be the name of a project: expected small letters, digits, - and _, a letter first, 63 at"
            " most, such as word-counts"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already; give another name, or remove it first")
    program = _PER_RECORD if per_record else _COLUMNS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in {"app.py": program, **_FILES}.items():
            (folder / file).write_text(content.replace("NAME", folder.name), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} can't be made ({error.strerror}); go to a folder that is yours") from None
    made = ", ".join(["app.py", *_FILES])
    typer.echo(f"{folder}: {made}\n\nTry it:\n\n    cd {folder}\n    tidemill try app.py records.txt")
