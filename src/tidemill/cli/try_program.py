"""``tidemill try APP.py``: a program run on a few records, typed in or from a file, and what came out of it as tables.

Decides what is shown: each topic that was written, each store with rows of its own, and of typed records what each brought.
The program runs on the plan that an instance would run, without a broker (``testing.TopologyTestDriver``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO
from uuid import UUID

import typer

from tidemill.cli.application_file import load_application
from tidemill.cli.files import read_text, without_mark
from tidemill.cli.progress import status_line
from tidemill.cli.record_lines import GRAMMAR, TypedRecord, record_of, records_of
from tidemill.cli.settings import ConfigFile, Settings, outside_settings
from tidemill.errors import ConfigError
from tidemill.printable import printable
from tidemill.text_table import table_lines
from tidemill.topology.nodes import StoreKind
from tidemill.topology.values import Serde
from tidemill.topology.windows import Windowed

if TYPE_CHECKING:
    from tidemill.testing.driver import TopologyTestDriver

_NEEDLESS = ("application.id", "bootstrap.servers")
_SHOWN = (
    StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED, StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW,
    StoreKind.SESSION,
)  # fmt: skip
"""Kinds of stores whose rows are keys and values of the program's; the others hold what waits."""
_WITH_TIME = (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED, StoreKind.TIMESTAMPED_WINDOW)
_WIDEST = 60
_IN_HELP = GRAMMAR.replace("[@", r"\[@")
"""Help texts are Rich's markup, in which ``[@TIME]`` would be a tag."""


def try_program(
    app: Annotated[Path, typer.Argument(help="The application file, or its module: Python that defines builder or topology.")],
    records: Annotated[
        Path | None, typer.Argument(help=f"Records, one a line: {_IN_HELP}. Without a file you type them.")
    ] = None,
    settings: Settings = None,
    config: ConfigFile = None,
) -> None:
    """Run a program on a few records and print its results; no broker is needed."""
    topology, merged = load_application(app, outside_settings(settings, config))
    text = None if records is None else read_text(records, expected="records, one a line")
    if text is None and not sys.stdin.isatty():
        text = _piped()
    lines = None if text is None else text.split("\n")
    source, own = str(records or "standard input"), {name: value for name, value in merged.items() if name not in _NEEDLESS}
    from tidemill.testing.driver import TopologyTestDriver, source_topics_of

    known = source_topics_of(topology, own)
    found = None
    if known is not None:  # then mistakes are found before Spark starts
        _check_there_are(known, app)
        found = list(records_of(lines or (), known, source))
    with status_line() as say:
        say("starting Spark")
        driver = TopologyTestDriver(topology, own)
    with driver:
        topics = driver.source_topics
        _check_there_are(topics, app)
        if lines is not None:
            _pipe(driver, records_of(lines, topics, source) if found is None else found)
        else:
            _converse(driver, topics, sys.stdin)
        typer.echo("\n\n".join(tables(driver)) or "Nothing was written, and no store has a row.")


def _check_there_are(topics: Mapping[str, tuple[Serde, Serde]], app: Path) -> None:
    if not topics:
        raise ConfigError(f"{app}: the program names no topic to read (a pattern of topics needs a broker: tidemill run)")


def _piped() -> str:
    try:
        return without_mark(sys.stdin.read())
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input: not {error.encoding} text ({error.reason}); expected records, one a line") from None


def _pipe(driver: TopologyTestDriver, records: Iterable[TypedRecord]) -> None:
    """All of them are read before the first runs, so that a mistake in the last line spoils nothing."""
    for record in list(records):
        key, value = driver.source_topics[record.topic]
        driver.create_input_topic(record.topic, key, value).pipe_input(record.key, record.value, record.timestamp)


def _converse(driver: TopologyTestDriver, topics: Mapping[str, tuple[Serde, Serde]], lines: TextIO) -> None:
    """Runs each line as it is typed and shows what it brought; an error is reported, and the line may be typed again."""
    typer.echo(f"Records as {GRAMMAR}, one a line; Ctrl-D ends. Topics read:")
    for topic, (key, value) in sorted(topics.items()):
        typer.echo(f"  {topic}: key {key.name}, value {value.name}")
    seen = dict.fromkeys(driver.sink_topics, 0)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            _pipe(driver, [record_of(line, topics, f"line {number}")])
        except ConfigError as error:
            typer.echo(f"  {error}", err=True)
            continue
        for topic in driver.sink_topics:
            written = _written(driver, topic)
            for row in written[seen.get(topic, 0) :]:
                typer.echo(f"  {topic}: {row[1]} => {row[2]}")
            seen[topic] = len(written)
    typer.echo()


def tables(driver: TopologyTestDriver) -> Iterator[str]:
    """A table of each topic that was written and of each store that has rows."""
    for topic in driver.sink_topics:
        written = _written(driver, topic)
        if written:
            yield _table(f"topic {topic}", ("time", "key", "value"), written)
    for name, kind_name in sorted(driver.store_kinds.items()):
        kind = StoreKind(kind_name)
        rows = list(_rows(driver, name, kind)) if kind in _SHOWN else []
        if rows:
            is_windowed = "window" in kind.value or kind is StoreKind.SESSION
            yield _table(f"store {name}", ("key", "from", "to", "value") if is_windowed else ("key", "value"), rows)


def _written(driver: TopologyTestDriver, topic: str) -> list[tuple[str, ...]]:
    records = driver.create_output_topic(topic, *driver.sink_topics[topic]).read_records()
    return [(str(record.timestamp), _text(record.key), _text(record.value)) for record in records]


def _rows(driver: TopologyTestDriver, name: str, kind: StoreKind) -> Iterator[tuple[str, ...]]:
    for key, row in driver.store(name).all():
        value = row[0] if kind in _WITH_TIME else row
        keys = (_text(key.key), str(key.start), str(key.end)) if isinstance(key, Windowed) else (_text(key),)
        yield (*keys, _text(value))


def _text(value: object) -> str:
    if isinstance(value, Windowed):
        return f"{_text(value.key)} [{value.start}, {value.end})"
    return "null" if value is None else str(value) if isinstance(value, (str, UUID)) else repr(value)


def _table(title: str, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as what is in them, up to a limit; names of others are made printable."""
    cells = [tuple(_cut(printable(cell, longest=1_000)) for cell in row) for row in rows]
    rule = tuple("-" * max(map(len, column)) for column in zip(names, *cells, strict=True))
    return "\n".join((f"{title} ({len(rows)})", *(f"  {line}" for line in table_lines([names, rule, *cells]))))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
