"""`make docs`: checks the pages, builds the site with warnings as errors, looks at what was built, and says what was verified.

Decides what counts as wrong in a built page: a link or an anchor that leads nowhere within the site, and anything that a browser
would fetch from elsewhere. Code on the pages is checked by `tools/doc_blocks.py`, links of the sources by MkDocs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import docs_generated
from doc_blocks import DOCS, ROOT, BlockError, blocks_of, check_commands, check_python, make_targets

SITE = ROOT / "build" / "site"
_LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
_NOT_LOADED = {"canonical", "next", "prev"}


@dataclass(slots=True)
class _Built(HTMLParser):
    """A built page: its anchors, its links, and what a browser loads for it."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADED and _LOADED[tag] in given and given.get("rel") not in _NOT_LOADED:
            self.loaded.append(given[_LOADED[tag]])


def main() -> int:
    if sys.version_info < (3, 11):
        print("the documentation is built with Python 3.11 or newer (MkDocs' theme needs it): make PYTHON=python3.11 docs")
        return 2
    try:
        for line in [*_check_sources(), _build(), *_check_site()]:
            print(f"  ok     {line}", flush=True)
    except BlockError as error:
        print(f"  FAILED {error}")
        return 1
    print(f"docs: {SITE / 'index.html'} (its search needs a server: python -m http.server -d {SITE.relative_to(ROOT)})")
    return 0


def _check_sources() -> list[str]:
    options = {path[1:]: _options_of(command) for path, command in docs_generated.commands()}
    targets = make_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    for path in [ROOT / "README.md", *sorted((ROOT / "deploy").rglob("*.md"))]:
        pages[f"../{path.relative_to(ROOT).as_posix()}"] = path.read_text(encoding="utf-8")
    built, commands, blocks = [], 0, 0
    for page, text in pages.items():
        found = blocks_of(page, text)
        blocks += sum(block.language == "python" for block in found)
        built += check_python(found)
        commands += check_commands(found, options, targets)
    return [
        f"{blocks} blocks of Python parsed, their imports of tidemill found; {len(built)} topologies built and described",
        f"{commands} command lines name commands, options and targets that there are",
    ]


def _options_of(command: object) -> set[str]:
    parameters = getattr(command, "params", [])
    return {name for parameter in parameters for name in [*parameter.opts, *parameter.secondary_opts] if name.startswith("--")}


def _build() -> str:
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--clean"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("WARNING", "ERROR", "Abort"))]
    if done.returncode != 0 or told:
        raise BlockError("mkdocs: " + "\n         ".join(told or (done.stdout + done.stderr).splitlines()[-20:]))
    return "mkdocs build --strict: no warning"


def _check_site() -> list[str]:
    pages = {}
    for path in sorted(SITE.rglob("*.html")):
        pages[path] = _Built()
        pages[path].feed(path.read_text(encoding="utf-8"))
    links, outside = 0, set()
    raw = [(path, text) for path in pages for text in _raw_markup(path)]
    wrong = [f"{path.relative_to(SITE)} has a list or a table that is none: {text!r}" for path, text in raw]
    for path, page in pages.items():
        wrong += [f"{path.relative_to(SITE)} loads {what}" for what in page.loaded if urlsplit(what).netloc]
        for link in page.links:
            if urlsplit(link).scheme in ("http", "https", "mailto"):
                outside.add(link)
                continue
            links += 1
            target, anchor = urldefrag(link)
            near = SITE / target.lstrip("/") if target.startswith("/") else path.parent / unquote(target)
            file = Path(os.path.normpath(near)) if target else path
            if file.is_dir():
                file = file / "index.html"
            if not file.is_file():
                wrong.append(f"{path.relative_to(SITE)} links to {link}, which is not there")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors | {"", "__top"}:
                wrong.append(f"{path.relative_to(SITE)} links to {link}: no such place on that page")
    styles = [style for style in SITE.rglob("*.css") if "url(http" in style.read_text(encoding="utf-8")]
    wrong += [f"{style.relative_to(SITE)} loads from elsewhere" for style in styles]
    if wrong:
        raise BlockError("\n         ".join(wrong[:40]))
    return [
        f"{len(pages)} pages, {links} links and their anchors lead somewhere; {len(outside)} addresses outside are not followed",
        "nothing is loaded from another host: no fonts, no scripts, no pictures",
    ]


def _raw_markup(path: Path) -> list[str]:
    """Paragraphs in which Markdown was not understood, as for want of an empty line before a list."""
    paragraphs = re.findall(r"<p>(.*?)</p>", path.read_text(encoding="utf-8"), re.DOTALL)
    return [text[:80] for text in paragraphs if re.search(r"\n(- |\* |\d+\. |\|)|```|^\|", text)]


if __name__ == "__main__":
    sys.exit(main())
