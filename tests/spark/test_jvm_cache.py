"""What a JVM's cache is named by, and that a JVM uses the one that the installation made."""

import os
from pathlib import Path

import pytest

from tidemill.spark import jvm_cache
from tidemill.spark.jvm_cache import cache_for


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
    (option,) = cache.options()
    assert option.endswith(f"={cache.path}")


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
