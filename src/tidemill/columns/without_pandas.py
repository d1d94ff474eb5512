"""PySpark asked whether NumPy is there, without pandas.

``F.lit``, which most functions of Columns call for a constant, and each call of the JVM with a text ask
``pyspark.testing.utils``. That module imports pandas to learn its version, 30 MiB and 0.3 s of a start.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from pyspark.sql.pandas import utils

_HELPERS = "pyspark.testing.utils"


def import_test_helpers() -> None:
    """Imports ``pyspark.testing.utils`` as it is where pandas is there and new enough. Whatever needs pandas looks for itself."""
    if _HELPERS in sys.modules or find_spec("pandas") is None:
        return
    required = utils.require_minimum_pandas_version
    utils.require_minimum_pandas_version = lambda: None
    try:
        import_module(_HELPERS)
    finally:
        utils.require_minimum_pandas_version = required
