"""Error codes of the ``stream`` protocol: in an assignment they end the members, in a subscription they ask for it."""

from __future__ import annotations

from enum import IntEnum


class AssignorError(IntEnum):
    """Kafka Streams' own numbers; ``sentence`` says what each means for the one who gets it."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    AssignorError.NONE: "no error",
    AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA: (
        "a source topic of the topology does not exist: create it and start again (the group leader's log names it)"
    ),
    AssignorError.VERSION_PROBING: "the leader could not read the subscription's version",
    AssignorError.ASSIGNMENT_ERROR: "the group's leader could not make an assignment: its log says why",
    AssignorError.SHUTDOWN_REQUESTED: "an instance of the application asked all instances to shut down",
}
