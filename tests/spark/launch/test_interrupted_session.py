"""Ctrl-C while a session is made, as in a notebook, whose process goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import os

from pyspark.sql import SparkSession

from tidemill.embedded.java import find_java
from tidemill.spark.launch.session import start_jvm
from tidemill.spark.launch.session_checks import require_room_for_own


def starting():
    require_room_for_own()
    java = find_java(os.environ).path
    return start_jvm(java=java, application_id="app", threads=1, settings={}, heap="512m")


making = SparkSession.Builder.getOrCreate


def interrupted(builder):
    making(builder)
    raise KeyboardInterrupt


first = starting()
SparkSession.Builder.getOrCreate = interrupted
try:
    first.session()
except KeyboardInterrupt:
    print("interrupted", first.process.poll() is not None, os.path.exists(first.scratch))
SparkSession.Builder.getOrCreate = making
second = starting().session()
print("counted", second.session.range(7).count())
second.close()
"""


def test_after_an_interrupt_the_next_session_begins_as_if_there_had_been_none() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.splitlines() == ["interrupted True False", "counted 7"], done.stderr


HANDLERS = """
import os
import signal

from pyspark.sql import SparkSession

from tidemill.embedded.java import find_java
from tidemill.spark.launch.session import start_jvm

making = SparkSession.__init__


def watched(session, *args, **named):
    print("with a context, without a session:", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    making(session, *args, **named)


SparkSession.__init__ = watched
signal.signal(signal.SIGINT, signal.default_int_handler)
made = start_jvm(java=find_java(os.environ).path, application_id="app", threads=1, settings={}, heap="512m").session()
print(made.session.sparkContext.appName)
made.close()
"""


def test_ctrl_c_is_not_pyspark_s_while_the_session_is_made() -> None:
    done = subprocess.run([sys.executable, "-c", HANDLERS], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.splitlines() == ["with a context, without a session: True", "app"], done.stderr
