"""What Python is told when Spark's JVM has died under it, in one sentence.

Decides which errors of Py4J mean that: the connection is refused, reset, or answers nothing. An exception of Java's is none.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from tidemill.errors import StopError

JVM_GONE = "the Spark JVM is gone: the instance can't go on; start it again"
_NO_ANSWER = re.compile(
    r"Answer from Java side is empty|Error while (sending|receiving)|An error occurred while calling \S+\s*\Z"
)


def is_jvm_gone(problem: BaseException) -> bool:
    if isinstance(problem, (Py4JNetworkError, ConnectionError)):
        return True
    is_of_py4j = isinstance(problem, Py4JError) and not isinstance(problem, Py4JJavaError)
    return is_of_py4j and _NO_ANSWER.match(str(problem)) is not None


@contextlib.contextmanager
def needing_the_jvm() -> Iterator[None]:
    """StopError if it dies meanwhile, or has died."""
    try:
        yield
    except Exception as problem:
        if is_jvm_gone(problem):
            raise StopError(JVM_GONE) from problem
        raise
