"""Every error that Tidemill raises, as a tree by what the caller must do about it.

A message says what was found, what was expected and what to do; ids are fields too, so that no one parses messages.
"""

from __future__ import annotations


class TidemillError(Exception):
    """Root of all errors of this library."""


class ConfigError(TidemillError):
    """A setting is unknown, malformed or contradicts another: correct it and start again."""


class TopologyError(TidemillError):
    """The topology can't be built as written: change the program."""


class SerdeError(TidemillError):
    """Bytes can't be read, or a value can't be written, by the serde that was given: correct the serde or the data."""


class AssignmentError(TidemillError):
    """No assignment can be made (missing source topic, copartitioning violated ...): the operator must act."""


class WireFormatError(AssignmentError):
    """The payload of another member can't be read, or one can't be written: see which member runs another format."""


class EnvironmentProblem(TidemillError):
    """Something outside the program is missing or in the way (Java, jars, a port, a folder): exit code 2 in the CLI."""


class RetriableError(TidemillError):
    """The same call may work later; nothing was changed."""


class BatchLostError(TidemillError):
    """A micro-batch did not happen as far as is known: go back to the committed offsets and run it again."""


class FencedError(TidemillError):
    """Another owner has taken over: drop what is owned, rejoin the group, make a new producer."""


class StopError(TidemillError):
    """The thread or instance can't go on and must stop; the message says why."""


class RecordError(StopError):
    """A record can't be read or processed; carries where it stands."""

    def __init__(self, message: str, *, task: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"task {task}, {topic}-{partition} at offset {offset}: {message}")
        self.task, self.topic, self.partition, self.offset = task, topic, partition, offset


class StateError(TidemillError):
    """A store can't be opened or is not at the position that was expected."""
