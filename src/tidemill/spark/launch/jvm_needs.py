"""What a JVM that ended while it started, or could make no Spark session, may have lacked: its own words seldom say it.

Each function gives the beginning of the sentence that has those words behind it; empty where nothing of its kind is lacking.
"""

from __future__ import annotations

import os
import pwd
import resource

_FILES_NEEDED = 1024
_ADDRESS_SPACE_NEEDED = 3 << 30
"""The heap, a GiB that the JVM reserves for its classes, compiled code, and the stacks of its threads."""


def what_it_lacked(said: str) -> str:
    """All of them, of this process's limits, its folder, and what the JVM ``said``."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    return f"{few_files(files)}{little_space(space)}{lacking_letters(said)}{lacking_folder()}{nameless_user()}"


def few_files(limit: int) -> str:
    """A JVM that can't find its own classes: it opens each of Spark's some 250 jars."""
    if not 0 <= limit < _FILES_NEEDED:
        return ""
    return f"a process may have only {limit} files open here, expected {_FILES_NEEDED} or more (ulimit -n); "


def little_space(limit: int) -> str:
    """A JVM that can't reserve or map what it needs."""
    if not 0 <= limit < _ADDRESS_SPACE_NEEDED:
        return ""
    needed = f"{_ADDRESS_SPACE_NEEDED >> 20} MiB or more (ulimit -v)"
    return f"a process may have only {limit >> 20} MiB of address space here, expected {needed}; "


def lacking_letters(said: str) -> str:
    """A JVM that can't open a path, because its locale lacks letters in it."""
    if "unmappable characters" not in said:
        return ""
    return "the locale (LC_ALL, LANG) lacks letters of a path: set one with UTF-8, or a TMPDIR of ASCII letters; "


def lacking_folder() -> str:
    """A JVM looks up the folder that it is started in."""
    try:
        os.getcwd()
    except OSError:
        return "the folder in which this process was started is gone: start it in one that stays; "
    return ""


def nameless_user() -> str:
    """Hadoop, in Spark, logs in as the user of the process, as in containers with a user id of their own."""
    number = os.getuid()
    try:
        pwd.getpwuid(number)
    except KeyError:
        return f"the user id {number} has no line in /etc/passwd, where Spark looks for its name: add one; "
    return ""
