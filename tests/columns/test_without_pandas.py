"""What PySpark asks its own test helpers brings no pandas into a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import sys
from pyspark.sql import functions as F
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter
from tidemill import Serdes, StreamsBuilder

builder = StreamsBuilder()
lines = builder.stream("lines", key=Serdes.string(), value=Serdes.string())
words = lines.flat_map_values(lambda line: F.array_remove(F.split(line, " "), ""))
words.filter(lambda key, word: word != F.lit("the")).to("words")
builder.build()
assert not NumpyArrayConverter().can_convert("an argument") and not NumpyScalarConverter().can_convert("an argument")
assert "pandas" not in sys.modules

import numpy as np
from pyspark.sql.pandas.utils import require_minimum_pandas_version
from pyspark.testing import assertDataFrameEqual
from pyspark.testing.utils import have_pandas

assert NumpyScalarConverter().can_convert(np.int64(1))
assert have_pandas
require_minimum_pandas_version()
import pandas as pd
assertDataFrameEqual(pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}))
"""


def test_functions_of_columns_and_calls_of_the_jvm_import_no_pandas_and_pyspark_still_finds_it() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
