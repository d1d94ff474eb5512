"""What a JVM's cache is named by, and that a JVM uses the one that the installation made."""

import logging
import os
import subprocess
from pathlib import Path

import pytest

from tidemill.embedded.jars import cache_folder
from tidemill.embedded.java import find_java
from tidemill.spark.launch import jvm_cache
from tidemill.spark.launch.jvm_cache import cache_for
from tidemill.spark.launch.session import JVM_FLAGS, start_jvm


def _installed(folder: Path, mtime_s: int) -> Path:
    (folder / "jars").mkdir(parents=True, exist_ok=True)
    jar = folder / "jars" / "spark-core.jar"
    jar.write_bytes(b"classes")
    os.utime(jar, (mtime_s, mtime_s))
    return folder


def _java(folder: Path, modules: bytes) -> Path:
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    (folder / "lib" / "modules").write_bytes(modules)
    os.utime(folder / "lib" / "modules", (1_000, 1_000))
    return folder / "bin" / "java"


def test_jars_installed_anew_want_a_cache_of_their_own(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    first = cache_for(java, 17, tmp_path, _installed(tmp_path / "pyspark", 1_000))
    assert cache_for(java, 17, tmp_path, _installed(tmp_path / "pyspark", 1_000)) == first
    assert cache_for(java, 17, tmp_path, _installed(tmp_path / "pyspark", 2_000)) != first


def test_another_build_of_a_java_wants_a_cache_of_its_own(tmp_path: Path) -> None:
    spark = _installed(tmp_path / "pyspark", 1_000)
    first = cache_for(_java(tmp_path / "java", b"25.0.2"), 25, tmp_path, spark)
    assert cache_for(_java(tmp_path / "java", b"25.0.2"), 25, tmp_path, spark) == first
    assert cache_for(_java(tmp_path / "java", b"25.0.2+10"), 25, tmp_path, spark) != first


def test_other_options_want_a_cache_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java, spark = tmp_path / "bin" / "java", _installed(tmp_path / "pyspark", 1_000)
    first = cache_for(java, 25, tmp_path, spark)
    monkeypatch.setattr(jvm_cache, "JVM_FLAGS", ("-XX:+UseParallelGC",))
    assert cache_for(java, 25, tmp_path, spark) != first


@pytest.mark.parametrize(("major", "kind"), [(17, "class archive"), (21, "class archive"), (25, "AOT cache")])
def test_a_cache_that_is_not_made_is_no_option(tmp_path: Path, major: int, kind: str) -> None:
    cache = cache_for(tmp_path / "bin" / "java", major, tmp_path, _installed(tmp_path / "pyspark", 1_000))
    assert (cache.kind, cache.is_made, cache.options()) == (kind, False, [])
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"")
    assert cache.options()[2].endswith(f"={cache.path}"), "behind those that say where it is mapped"


def test_a_class_archive_needs_one_that_comes_with_the_java(tmp_path: Path) -> None:
    java, spark = tmp_path / "java" / "bin" / "java", _installed(tmp_path / "pyspark", 1_000)
    assert not cache_for(java, 21, tmp_path, spark).can_be_made
    assert cache_for(java, 25, tmp_path, spark).can_be_made
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "java" / "lib" / "server" / "classes.jsa").write_bytes(b"")
    assert cache_for(java, 21, tmp_path, spark).can_be_made


def test_the_caches_of_files_that_are_gone_are_removed_and_others_stay(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    before = cache_for(java, 17, tmp_path, _installed(tmp_path / "pyspark", 1_000))
    elsewhere = cache_for(java, 17, tmp_path, _installed(tmp_path / "other", 1_000))
    now = cache_for(java, 25, tmp_path, _installed(tmp_path / "pyspark", 2_000))
    before.path.parent.mkdir()
    for cache in (before, elsewhere, now):
        cache.path.write_bytes(b"")
    now.forget_others()
    assert sorted(now.path.parent.iterdir()) == sorted([elsewhere.path, now.path])


@pytest.mark.spark
def test_a_jvm_uses_the_cache_that_the_installation_made() -> None:
    java = find_java(os.environ)
    cache = cache_for(java.path, java.major, cache_folder(os.environ))
    assert cache.is_made, f"no {cache.path}: tidemill prepare makes it, make install runs that"
    told = {"AOT cache": ("aot", "Using AOT-linked classes: true"), "class archive": ("cds*", "Mapped dynamic region")}
    tag, used = told[cache.kind]
    options = [*JVM_FLAGS, *cache.options(), f"-Xlog:{tag}=info", "-cp", str(jvm_cache.SPARK / "jars" / "*")]
    said = subprocess.run([java.path, *options, "-version"], capture_output=True, text=True, timeout=240, check=True).stdout
    assert used in said
    assert "Unable to" not in said


@pytest.mark.spark
def test_a_cache_that_the_jvm_refuses_is_told_once_and_it_starts_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    java = find_java(os.environ)
    cache = cache_for(java.path, java.major, tmp_path)
    if java.major < jvm_cache.FIRST_WITH_AOT:
        pytest.skip(f"Java {java.major} has no AOT cache: JEP 514 came with 25")
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"no cache")
    jvm = start_jvm(
        java=java.path, application_id="refused", threads=1, settings={}, heap="256m", jvm_options=cache.options()
    )  # fmt: skip
    try:
        with caplog.at_level(logging.WARNING):
            jvm.wait(240)
        assert [line.split()[0] for line in caplog.messages if "jvm-cache" in line] == ["event=jvm-cache-refused"]
        assert jvm.process.poll() is None
    finally:
        jvm.end()
