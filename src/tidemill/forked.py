"""Processes that are forked from this one: what they inherit stays their parent's.

A program may fork while an application runs (``os.fork``, ``multiprocessing``). The child has a copy of every object and of every
open file, but none of the threads. What it would end (a Spark session, a socket, the state directory's lock) is its parent's. A
file that it keeps open hides the parent's death from those that see it by the file's end. So the owners of such things register
here, and let go of them in each child. What can't be let go of, since its release ends threads that no child has, is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import traceback
import weakref
from collections.abc import Iterator
from typing import NoReturn, Protocol, TypeVar

Handle = TypeVar("Handle")


class Owner(Protocol):
    def leave_to_parent(self) -> None:
        """Called in a child: closes its copies of open files, and ends nothing. Called again in each child of that one, whose own
        may have begun since what its parent had not."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_handles: weakref.WeakSet[object] = weakref.WeakSet()


def leaves_to_parent(owner: Owner) -> None:
    """Has ``owner.leave_to_parent`` called in each process that is forked from now on, as long as ``owner`` lives."""
    _owners.add(owner)


def kept_in_children(handle: Handle) -> Handle:
    """``handle``, which no process that is forked from now on releases, not even at its end: a client of librdkafka, whose
    release waits for its threads. In a child that crashes as soon as a second one is released."""
    _handles.add(handle)
    return handle


@contextlib.contextmanager
def children_end() -> Iterator[None]:
    """A process that is forked within ends here, whether it returns or raises: what is done behind is its parent's. Its exit code
    is the one that Python would give."""
    owner = os.getpid()
    try:
        yield
    except BaseException as problem:
        if os.getpid() != owner:
            _exit(problem)
        raise
    if os.getpid() != owner:
        _exit(None)


def _exit(problem: BaseException | None) -> NoReturn:
    """Ends this process alone: what Python runs at an exit is its parent's, too."""
    exits = [each for each in _with_causes(problem) if isinstance(each, SystemExit)]  # else told as a function's failure
    code = exits[0].code if exits else None
    if isinstance(code, str):
        print(code, file=sys.stderr)
    elif problem is not None and not exits:
        traceback.print_exception(problem)
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 0 if code is None else 1)


def _with_causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__


def _after_fork() -> None:
    for handle in list(_handles):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))  # a name that refers to it would be cleared when Python ends
    for owner in list(_owners):
        with contextlib.suppress(OSError):  # closed already; the others let go all the same
            owner.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
