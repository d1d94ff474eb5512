"""What the pages show holds: programs build, commands exist, and the how-tos' programs do what their pages say."""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import json
import re
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docs_generated
import docs_site
import pytest
from doc_blocks import DOCS, Block, BlockError, blocks_of, check_commands, check_python, fenced, indented

from tests.operators.harness import start
from tidemill import ApplicationState, ClientState
from tidemill.assignment.choice import choose_assignor
from tidemill.config.streams_config import setting_table

PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_the_page_parses_builds_and_imports_what_there_is(page: str) -> None:
    check_python(blocks_of(page, (DOCS / page).read_text(encoding="utf-8")))


def test_the_pages_explain_every_warning_and_error_of_the_log() -> None:
    pages = " ".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    source = " ".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    written = set(re.findall(r'log\.(?:warning|error|exception)\(\s*LogEvent\(\s*"([a-z-]+)"', source))
    assert len(written) > 60
    assert {event for event in written if not re.search(rf"(`|event=){event}\b", pages)} == set()


def _block(text: str, language: str = "python") -> Block:
    return Block(page="a.md", line=3, language=language, title=None, text=text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = = 1", "invalid syntax"),
        ("from tidemill import KStreams", "tidemill has no KStreams"),
        ("from tidemill import StreamsBuilder\nbuilder = StreamsBuilder()\nbuilder.strem('t')", "StreamsBuilder has no strem"),
        ("from tidemill import StreamsBuilder\nbuilder = StreamsBuilder()\nbuilder.stream('t').to('t/')", "'t/'"),
    ],
)
def test_wrong_python_is_reported_with_its_place(text: str, told: str) -> None:
    with pytest.raises(BlockError, match=r"docs/a\.md, line 3: ") as error:
        check_python([_block(text)])
    assert told in str(error.value)


def test_programs_that_stand_to_the_right_are_built_too() -> None:
    program = "# A\n\n    from tidemill import StreamsBuilder\n    builder = StreamsBuilder()\n    builder.stream('t').to('u')\n"
    assert check_python(blocks_of("a.md", program)) == ["docs/a.md, line 3"]
    with pytest.raises(BlockError, match=r"docs/a\.md, line 3: .*'u/'"):
        check_python(blocks_of("a.md", program.replace("'u'", "'u/'")))


def test_classes_of_a_page_have_their_annotations_as_written() -> None:
    shown = "from dataclasses import dataclass, fields\nfrom tidemill import StreamsBuilder\nbuilder = StreamsBuilder()\n"
    shown += "@dataclass\nclass Order:\n    amount: float\nassert fields(Order)[0].type is float\nbuilder.stream('t').to('u')\n"
    assert check_python([_block(shown)]) == ["docs/a.md, line 3"]


def test_a_program_that_is_shown_as_a_mistake_must_be_one() -> None:
    start = "from tidemill import Serdes, StreamsBuilder\nbuilder = StreamsBuilder()\n"
    start += "lines = builder.stream('t', value=Serdes.string())\n"
    mistake, right = start + "lines.map_values(lambda v: v.lower()).to('u')", start + "lines.to('u')"
    shown = [replace(_block(text), directives=("refused",)) for text in (mistake, right)]
    assert check_python(shown[:1]) == []
    with pytest.raises(BlockError, match=r"docs/a\.md, line 3: the page says that its topology is refused, and it is not"):
        check_python(shown[1:])


OPTIONS = {("run",): {"--set"}, ("broker", "start"): {"--port"}, ("broker", "stop"): set()}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tidemill start app.py", "no command `tidemill start`"),
        ("tidemill run app.py --sett a=b", "has no option --sett"),
        ("tidemill broker restart", "no command `tidemill broker restart`"),
        ("make demmo", "no target demmo"),
    ],
)
def test_a_command_that_is_not_there_is_reported(line: str, told: str) -> None:
    with pytest.raises(BlockError, match=told):
        check_commands([_block(line, "console")], OPTIONS, {"demo"})


def test_commands_are_found_with_what_explains_them() -> None:
    text = "tidemill run app.py --set a=b\ntidemill broker start|stop\nmake demo N=2     tidemill all of it\nls"
    assert check_commands([_block(text, "console")], OPTIONS, {"demo"}) == 3


def test_blocks_know_their_lines_titles_and_directives() -> None:
    text = '# A\n\n<!-- run: until it fits -->\n```console\nls\n```\n\n    indented\n\n```python title="a.py"\n1\n```\n'
    first, second = fenced("p.md", text)
    assert (first.line, first.language, first.directives) == (5, "console", ("until it fits",))
    assert (second.line, second.title, second.directives) == (11, "a.py", ())
    assert [(block.line, block.text) for block in indented("p.md", text)] == [(8, "indented")]


def _pages_of(found: Any) -> Iterator[str]:
    """The pages of a navigation, of its sections and their groups."""
    if isinstance(found, str):
        yield found
    else:
        for inner in found.values() if isinstance(found, dict) else found:
            yield from _pages_of(inner)


FOR_EVERYONE = "index.md"
"""Says where each reader begins."""


@pytest.mark.parametrize("page", [page for page in PAGES if page != FOR_EVERYONE])
def test_the_first_paragraph_says_for_whom_the_page_is_and_what_for(page: str) -> None:
    paragraphs = (DOCS / page).read_text(encoding="utf-8").split("\n\n")
    first = next(text for text in paragraphs if re.match(r"\w", text.partition("\n")[2] if text.startswith("#") else text))
    says = re.search(r"\b(This (page|tutorial) is|These pages are) for [a-zA-Z]", first)
    assert says, f"docs/{page} begins with: {first[:200]!r}"


def test_every_page_has_a_place_in_the_navigation_and_none_has_two() -> None:
    pages = [*PAGES, *docs_generated.pages(docs_site.ROOT), "newcomer.md", "how-to/another.md"]
    placed = list(_pages_of(docs_site.navigation(pages)))
    assert sorted(placed) == sorted(set(pages))


def test_links_out_of_the_docs_become_pages_or_text() -> None:
    made, pages = {"benchmarks/RESULTS.md": "benchmarks/results.md"}, {"how-to/b.md", "benchmarks/results.md"}
    text = "[figures](../../benchmarks/RESULTS.md#a), [code](../../Makefile), [page](b.md), [there](https://x.y), [gone](c.md)"
    assert docs_site.links_within(text, "how-to/a.md", pages, made, "docs/how-to/a.md") == (
        "[figures](../benchmarks/results.md#a), code (`Makefile`), [page](b.md), [there](https://x.y), [gone](c.md)"
    )


def test_a_page_made_of_a_file_elsewhere_has_links_from_where_it_stands() -> None:
    text = "[why](../docs/how-to/b.md), [file](app.yaml)"
    assert docs_site.links_within(text, "benchmarks/results.md", {"how-to/b.md"}, {}, "benchmarks/RESULTS.md") == (
        "[why](../how-to/b.md), [file](app.yaml)"
    )


def test_the_reference_of_settings_has_every_setting() -> None:
    page = docs_generated.settings_page()
    assert [name for name, _default, _meaning in setting_table() if f"| `{name}" not in page] == []


def test_brackets_in_a_help_text_are_no_links() -> None:
    page = docs_generated.command_line_page()
    assert r"\[@TIME\] \[TOPIC:\] \[KEY =>\] VALUE" in page
    assert re.findall(r"(?<!\\)\[", re.sub("`[^`]*`", "", page)) == []


# --- what the how-tos' programs do ---


def _written(page: str, *records: tuple[str, str, str, int]) -> list[tuple[str | None, Any]]:
    """(key, value) of what the first program of the page sends, for (topic, key, value, timestamp)."""
    program = next(block for block in fenced(page, (DOCS / page).read_text(encoding="utf-8")) if "builder = " in block.text)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program.text, page, "exec", dont_inherit=True), names)
    run = start(names["builder"].build())
    for at, (topic, key, value, timestamp) in enumerate(records):
        run.pipe(at, topic, key.encode(), value.encode(), timestamp)
    inner = {topic for topic in (record[0] for record in run.written) if topic.endswith("-repartition")}
    return [(key and key[:4].decode(), value) for topic, key, value, *_ in run.written if topic not in inner]


def test_duplicates_within_a_day_are_dropped() -> None:
    day = 86_400_000
    events = [("events", "e1", "a", 0), ("events", "e2", "b", 1), ("events", "e1", "a", 5), ("events", "e1", "a", day + 1)]
    assert _written("how-to/drop-duplicates.md", *events) == [("e1", b"a"), ("e2", b"b"), ("e1", b"a")]


def test_an_order_gets_its_customer_s_name_as_it_is_then() -> None:
    found = _written(
        "how-to/join-stream-with-table.md",
        ("orders", "o1", '{"customer": "cust", "amount": 1.0}', 0),
        ("customers", "cust", '{"name": "Ada"}', 1),
        ("orders", "o2", '{"customer": "cust", "amount": 2.0}', 2),
    )
    assert [(key, json.loads(value).get("name")) for key, value in found] == [("cust", None), ("cust", "Ada")]


def test_a_visit_is_sent_once_when_it_is_over() -> None:
    minute = 60_000
    clicks = [("clicks", "user", page, at * minute) for page, at in (("a", 0), ("b", 10), ("c", 20))]
    (visit,) = _written("how-to/sessionise.md", *clicks, ("clicks", "user", "d", 100 * minute))
    assert (visit[0], json.loads(visit[1])) == ("user", {"clicks": 3, "pages": ["a", "b", "c"]})


def test_a_minute_s_clicks_are_counted_once_it_has_closed() -> None:
    clicks = [("clicks", "user", "x", at) for at in (0, 59_999, 60_000, 70_001)]
    assert _written("how-to/windowed-count.md", *clicks) == [("user", (2).to_bytes(8, "big"))]


def test_the_assignor_s_own_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "how-to/write-an-assignor.md"
    for block in fenced(page, (DOCS / page).read_text(encoding="utf-8")):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    test = importlib.import_module("test_stay_put")
    test.test_a_new_client_gets_only_what_ran_nowhere()
    bob = ClientState(process_id=test.BOB, capacity=1)
    state = ApplicationState(clients=(bob,), tasks=test.TASKS, stateful_tasks=frozenset())
    chosen = choose_assignor("stay_put:StayPut").assignor.assign(state)
    assert chosen.clients[test.BOB].active == set(test.TASKS)


def test_every_page_is_reached_from_the_index() -> None:
    reached: set[Path] = set()
    ahead = [DOCS / "index.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            ahead += [page.parent / link for link in re.findall(r"\]\(([^)\s#:]+)", page.read_text(encoding="utf-8"))]
    assert [page for page in PAGES if (DOCS / page).resolve() not in reached] == []


def _documented() -> dict[str, Any]:
    """What the pages of the reference name, by its full name."""
    found = {}
    for page in (DOCS / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, last = name.rpartition(".")
            found[name] = getattr(importlib.import_module(module), last)
    return found


def test_all_that_is_in_the_reference_says_what_it_is() -> None:
    silent = []
    for name, found in _documented().items():
        if typing.get_origin(found) in (collections.abc.Callable, typing.Union):
            continue  # an alias: its docstring stands below it, where Python doesn't keep it
        members = vars(found) if isinstance(found, type) else {}
        public = {member: what for member, what in members.items() if not member.startswith("_")}
        said = {name: found} | {
            f"{name}.{member}": what for member, what in public.items()
            if isinstance(what, (property, staticmethod, classmethod)) or inspect.isfunction(what)
        }
        silent += [who for who, what in said.items() if not (inspect.getdoc(what) or "").strip()]
    assert silent == []
