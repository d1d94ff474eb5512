import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from tidemill.kafka.jars import cache_folder
from tidemill.kafka.java import find_java
from tidemill.spark.class_archive import archive_path, forget_others


def _installed(folder: Path, mtime_s: int) -> Path:
    (folder / "jars").mkdir(parents=True, exist_ok=True)
    jar = folder / "jars" / "spark-core.jar"
    jar.write_bytes(b"classes")
    os.utime(jar, (mtime_s, mtime_s))
    return folder


def test_jars_installed_anew_want_an_archive_of_their_own(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    first = archive_path(java, tmp_path, _installed(tmp_path / "pyspark", 1_000))
    assert archive_path(java, tmp_path, _installed(tmp_path / "pyspark", 1_000)) == first
    assert archive_path(java, tmp_path, _installed(tmp_path / "pyspark", 2_000)) != first


def test_the_archive_of_jars_that_are_gone_is_removed_and_others_stay(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    before = archive_path(java, tmp_path, _installed(tmp_path / "pyspark", 1_000))
    elsewhere = archive_path(java, tmp_path, _installed(tmp_path / "other", 1_000))
    now = archive_path(java, tmp_path, _installed(tmp_path / "pyspark", 2_000))
    before.parent.mkdir()
    for path in (before, elsewhere, now):
        path.write_bytes(b"")
    forget_others(now)
    assert sorted(now.parent.iterdir()) == sorted([elsewhere, now])


@pytest.mark.spark
def test_a_jvm_uses_the_archive_that_the_installation_made() -> None:
    java = find_java(os.environ).path
    archive = archive_path(java, cache_folder(os.environ))
    assert archive.is_file(), f"no {archive}: tidemill prepare makes it, make install runs that"
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    options = ["-XX:+UseSerialGC", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=info", "-cp", jars]
    said = subprocess.run([java, *options, "-version"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "Mapped dynamic region" in said
    assert "Unable to use shared archive" not in said
