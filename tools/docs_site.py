"""MkDocs' hooks for the documentation: the navigation, the pages that are made of something else, and links out of docs/.

Decides the place of each page. A page that is named here and does not exist yet is left out, and one that exists and is not named
goes where its folder has a star: nobody has to touch this file to add a page. Links to files of the repository
outside docs/ become links to pages made of them, or plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docs_generated

if TYPE_CHECKING:  # the tests look at navigation and links without MkDocs, which only `make docs` installs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

Pages = tuple[str, ...]
SECTIONS: dict[str, Pages | dict[str, Pages]] = {
    "Home": ("index.md",),
    "Tutorials": ("first-hour.md", "tutorial.md", "examples/*"),
    "How-to guides": {
        "All guides": ("how-to/index.md",),
        "Writing programs": (
            "how-to/new-project.md", "how-to/columns.md", "how-to/functions-in-batches.md", "how-to/count-per-key.md",
            "how-to/windowed-count.md", "how-to/quiet-topics.md", "how-to/join-stream-with-table.md",
            "how-to/drop-duplicates.md", "how-to/sessionise.md", "how-to/test-a-program.md", "how-to/bad-records.md",
            "how-to/notebook.md", "how-to/write-an-assignor.md", "testing.md", "dataframes.md",
        ),
        "Operating": (
            "operations.md", "how-to/restart-and-resume.md", "how-to/scale-out.md", "how-to/upgrade-without-downtime.md",
            "how-to/drain-and-roll.md", "how-to/watch-a-restore.md", "how-to/what-moved.md", "how-to/autoscale.md",
            "how-to/reset-and-recompute.md", "how-to/read-a-store.md", "how-to/never-older-reads.md", "how-to/*", "dashboard.md",
            "security.md", "simulate.md", "broker.md",
        ),
        "Deploying": ("cluster.md", "deploy/kubernetes.md", "deploy/spark-on-kubernetes.md", "deploy/*"),
        "Coming from": ("migration/kafka-streams.md", "migration/faust.md", "migration/quix-streams.md", "migration/*"),
    },
    "Reference": {
        "Programs": (
            "dsl.md", "dsl/operators.md", "dsl/aggregates.md", "dsl/tables.md", "dsl/joins.md", "dsl/windows.md",
            "processor-api.md", "serdes.md", "json.md", "dsl/*",
        ),
        "Applications": (
            "configuration.md", "reference/settings.md", "reference/command-line.md", "lifecycle.md", "reads.md", "metrics.md",
        ),
        "Python API": (
            "reference/index.md", "reference/builder.md", "reference/streams.md", "reference/tables.md", "reference/windows.md",
            "reference/joins.md", "reference/functions.md", "reference/serdes.md", "reference/stores.md",
            "reference/processors.md", "reference/application.md", "reference/listeners.md", "reference/assignors.md",
            "reference/testing.md", "reference/errors.md", "reference/*",
        ),
    },
    "Explanation": {
        "Concepts": (
            "words.md", "topology.md", "data-path.md", "exactly-once.md", "state.md", "high-availability.md", "spark.md",
            "correctness.md",
        ),
        "Measurements": ("comparison.md", "benchmarks.md", "benchmarks/results.md", "experiments/*", "scaling.md"),
        "Design": ("architecture.md", "adr/*"),
    },
    "More": ("changelog.md", "contributing/index.md", "contributing/*", "*"),
}  # fmt: skip
"""Section -> its pages in order, or its groups with theirs. Sections are kinds of pages: tutorials, how-to guides, reference and
explanation. A star is every page of a folder that is named nowhere."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for path, text in docs_generated.pages(ROOT).items():
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, content=text))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} | set(docs_generated.pages(ROOT))
    config.nav = navigation(there)
    return config


def navigation(pages: Iterable[str]) -> list[dict[str, Any]]:
    """The sections, with all of ``pages`` in them."""
    there = set(pages)
    grouped = [page for wanted in SECTIONS.values() for page in (chain(*wanted.values()) if isinstance(wanted, dict) else wanted)]
    left = sorted(there - set(grouped))
    sections: list[dict[str, Any]] = []
    for title, wanted in SECTIONS.items():
        if isinstance(wanted, dict):
            groups = {name: list(_found(of_group, there, left)) for name, of_group in wanted.items()}
            sections.append({title: [{name: found} for name, found in groups.items() if found]})
        elif found := list(_found(wanted, there, left)):
            sections.append({title: found[0] if len(wanted) == 1 and len(found) == 1 else found})
    return sections


def _found(wanted: tuple[str, ...], there: set[str], left: list[str]) -> Iterator[str]:
    for page in wanted:
        if not page.endswith("*"):
            if page in there:
                yield page
            continue
        for other in [other for other in left if page == "*" or other.startswith(page[:-1])]:
            left.remove(other)
            yield other


_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    made = docs_generated.made_of(ROOT)
    origin = next((file for file, made_page in made.items() if made_page == page.file.src_uri), f"docs/{page.file.src_uri}")
    return links_within(markdown, page.file.src_uri, {file.src_uri for file in files}, made, origin)


def links_within(markdown: str, page: str, pages: set[str], made: Mapping[str, str], origin: str) -> str:
    """``markdown`` with links that fit the place of ``page``.

    It was written in ``origin``, a file of the repository. What ``made`` says to be a page of its own, and pages, are linked
    to; other files of the repository become plain text. A link that leads nowhere stays, so that MkDocs reports it.
    """

    def replaced(found: re.Match[str]) -> str:
        text, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in path or path.startswith(("/", "mailto:")):
            return found.group()
        file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        to = made.get(file) or file.removeprefix("docs/")
        if to in pages and (file in made or file.startswith("docs/")):
            link = posixpath.relpath(to, posixpath.dirname(page) or ".")
            return f"[{text}]({link}{'#' + anchor if anchor else ''})"
        if (ROOT / file).exists():
            return text if text.strip("`") == file else f"{text} (`{file}`)"
        return found.group()

    return _LINK.sub(replaced, markdown)
