"""What a JVM's cache is named by, and when it is used."""

import os
from pathlib import Path

import pytest

from tidemill.embedded.java import Java
from tidemill.embedded.jvm_cache import JvmCache, cache_of

MADE_WITH = ("-XX:+UseSerialGC",)


def _installed(folder: Path, mtime_s: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / "core.jar"
    jar.write_bytes(b"classes")
    os.utime(jar, (mtime_s, mtime_s))
    return folder


def _modules(folder: Path, modules: bytes) -> Path:
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    (folder / "lib" / "modules").write_bytes(modules)
    os.utime(folder / "lib" / "modules", (1_000, 1_000))
    return folder / "bin" / "java"


def _cache(java: Path, major: int, folder: Path, jars: Path, made_with: tuple[str, ...] = MADE_WITH) -> JvmCache:
    return cache_of("core", Java(path=java, major=major), jars, folder, made_with=made_with)


def test_jars_installed_anew_want_a_cache_of_their_own(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    first = _cache(java, 17, tmp_path, _installed(tmp_path / "jars", 1_000))
    assert _cache(java, 17, tmp_path, _installed(tmp_path / "jars", 1_000)) == first
    assert _cache(java, 17, tmp_path, _installed(tmp_path / "jars", 2_000)) != first


def test_another_build_of_a_java_wants_a_cache_of_its_own(tmp_path: Path) -> None:
    jars = _installed(tmp_path / "jars", 1_000)
    first = _cache(_modules(tmp_path / "java", b"25.0.2"), 25, tmp_path, jars)
    assert _cache(_modules(tmp_path / "java", b"25.0.2"), 25, tmp_path, jars) == first
    assert _cache(_modules(tmp_path / "java", b"25.0.2+10"), 25, tmp_path, jars) != first


def test_other_options_want_a_cache_of_their_own(tmp_path: Path) -> None:
    java, jars = tmp_path / "bin" / "java", _installed(tmp_path / "jars", 1_000)
    assert _cache(java, 25, tmp_path, jars) != _cache(java, 25, tmp_path, jars, ("-XX:+UseParallelGC",))


@pytest.mark.parametrize(("major", "kind"), [(17, "class archive"), (21, "class archive"), (25, "AOT cache")])
def test_a_cache_that_is_not_made_is_no_option(tmp_path: Path, major: int, kind: str) -> None:
    cache = _cache(tmp_path / "bin" / "java", major, tmp_path, _installed(tmp_path / "jars", 1_000))
    assert (cache.kind, cache.is_made, cache.options()) == (kind, False, [])
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"")
    assert cache.options()[2].endswith(f"={cache.path}"), "behind those that say where it is mapped"


def test_a_class_archive_needs_one_that_comes_with_the_java(tmp_path: Path) -> None:
    java, jars = tmp_path / "java" / "bin" / "java", _installed(tmp_path / "jars", 1_000)
    assert not _cache(java, 21, tmp_path, jars).can_be_made
    assert _cache(java, 25, tmp_path, jars).can_be_made
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "java" / "lib" / "server" / "classes.jsa").write_bytes(b"")
    assert _cache(java, 21, tmp_path, jars).can_be_made


def test_what_a_jvm_wrote_takes_the_place_of_the_caches_of_files_that_are_gone(tmp_path: Path) -> None:
    java, draft = tmp_path / "bin" / "java", tmp_path / "draft"
    before = _cache(java, 17, tmp_path, _installed(tmp_path / "jars", 1_000))
    elsewhere = _cache(java, 17, tmp_path, _installed(tmp_path / "other", 1_000))
    now = _cache(java, 25, tmp_path, _installed(tmp_path / "jars", 2_000))
    before.path.parent.mkdir()
    for path in (before.path, elsewhere.path, draft):
        path.write_bytes(path.name.encode())
    now.keep(draft)
    assert sorted(now.path.parent.iterdir()) == sorted([elsewhere.path, now.path])
    assert now.path.read_bytes() == b"draft"


def test_a_jvm_that_wrote_nothing_leaves_all_as_it_is(tmp_path: Path) -> None:
    java, jars = tmp_path / "bin" / "java", _installed(tmp_path / "jars", 1_000)
    before, now = _cache(java, 17, tmp_path, jars), _cache(java, 25, tmp_path, jars)
    before.path.parent.mkdir()
    before.path.write_bytes(b"")
    with pytest.raises(OSError, match="No such file"):
        now.keep(tmp_path / "draft")
    assert before.is_made
