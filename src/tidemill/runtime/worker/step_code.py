"""Code of a step as it travels in the plan, pickled by itself, so that what a worker can't load is noticed by the worker.

If PySpark loaded it, no one would read the error: the JVM's thread waits in the source step for the next batch. A step that can't
load it fails like any other (``ControlClient``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark import cloudpickle

from tidemill.control.channel import ControlClient
from tidemill.errors import StopError
from tidemill.printable import said_by


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCode:
    """``address`` and ``key`` of the driver's control channel."""

    address: str
    key: bytes = field(repr=False)
    thread: str
    step: str
    pickled: bytes = field(repr=False)

    @classmethod
    def of(cls, code: object, *, address: str, key: bytes, thread: str, step: str) -> StepCode:
        return cls(address=address, key=key, thread=thread, step=step, pickled=cloudpickle.dumps(code))

    @property
    def name(self) -> str:
        """Distinct in a process that has workers of several drivers."""
        return f"{self.address}:{self.thread}:{self.step}"

    def client(self, run: int) -> ControlClient:
        """A new end of the channel, in a task of this run."""
        return ControlClient(self.address, self.key, self.thread, self.step, run)

    def loaded(self) -> Any:
        """The code.

        Raises:
            StopError: the user's module of a function can't be imported here, or its class is another one here.
        """
        try:
            return cloudpickle.loads(self.pickled)
        except Exception as problem:
            raise StopError(
                f"a Python worker can't load the program's functions: {type(problem).__name__}: {said_by(problem)}. They "
                "must be in modules that workers can import: installed, or in a folder of sys.path, on executors too"
            ) from problem
