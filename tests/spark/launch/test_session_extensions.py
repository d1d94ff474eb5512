"""Extensions that Spark's sessions find on the class path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from tidemill.spark.launch.session_extensions import may_wait

HOME = Path(pyspark.__file__).parent
SERVICE = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"

LATE_IMPORT = """
import sys
from tidemill.testing.shared_session import shared_session
spark = shared_session()
assert "pyspark.ml" not in sys.modules
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("tidemill")]
rows = spark.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["vector"])
print(spark.conf.get("spark.sql.extensions.test.loadFromCp"), rows.select(vector_to_array("vector")).first()[0])
"""


@pytest.fixture
def without_ml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark.ml", raising=False)


@pytest.mark.usefixtures("without_ml")
def test_the_extension_of_pyspark_as_it_comes_may_wait() -> None:
    assert may_wait({"spark.sql.shuffle.partitions": "1"}, HOME, {})


def test_mllib_s_is_the_only_one_that_pyspark_comes_with() -> None:
    jars = [jar for jar in (HOME / "jars").glob("*.jar") if SERVICE in ZipFile(jar).namelist()]
    assert [jar.name.partition("_")[0] for jar in jars] == ["spark-mllib"]
    assert ZipFile(jars[0]).read(SERVICE).decode().splitlines()[-1] == "org.apache.spark.sql.ml.InternalFunctionRegistration"


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"])
@pytest.mark.usefixtures("without_ml")
def test_jars_of_the_user_s_may_have_others(name: str) -> None:
    assert not may_wait({name: "other.jar"}, HOME, {})
    assert may_wait({name: ""}, HOME, {})


@pytest.mark.usefixtures("without_ml")
def test_settings_elsewhere_may_name_jars(tmp_path: Path) -> None:
    assert not may_wait({}, HOME, {"SPARK_CONF_DIR": str(tmp_path)})
    (tmp_path / "jars").mkdir()
    assert may_wait({}, tmp_path, {})
    (tmp_path / "conf").mkdir()
    assert not may_wait({}, tmp_path, {})


@pytest.mark.usefixtures("without_ml")
def test_a_jar_that_is_not_pyspark_s_may_have_another(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / next((HOME / "jars").glob("spark-mllib*")).name).touch()
    (tmp_path / "jars" / "notes.txt").touch()
    assert may_wait({}, tmp_path, {})
    (tmp_path / "jars" / "other.jar").touch()
    assert not may_wait({}, tmp_path, {})


def test_it_does_not_wait_once_mllib_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.ml", pyspark)
    assert not may_wait({}, HOME, {})


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_mllib_s_functions_are_there_for_who_imports_it_later() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    command = [sys.executable, "-c", LATE_IMPORT]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500, env=environ)
    assert done.stdout.splitlines()[-1:] == ["false [1.0, 2.0]"], done.stderr
