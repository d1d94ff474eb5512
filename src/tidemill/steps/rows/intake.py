"""Conversion of source topics' keys and values for the JVM: by the serde first, if it may refuse or replace bytes.

Decides that what reaches the JVM is well-formed: numbers of their width, valid UTF-8, JSON that fits its schema, or what is in
place of a serde that the JVM does not know. So a record is read alike by the plan, by operators and by the test driver, and what
a serde refuses is unreadable everywhere. Invariant: no byte passes that the JVM would read as something else, or as null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemill.dsl.serdes import BytesSerde, StringSerde
from tidemill.errors import ConfigError, RetriableError
from tidemill.printable import said_by
from tidemill.steps.rows.codecs_wire import Physical, fixed_width, for_the_jvm, physical, transit_of
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True)
class Intake:
    """Conversion of the keys or values of a source's records."""

    serde: Serde

    @property
    def kind(self) -> Physical:
        """The column that the JVM reads."""
        return physical(self.serde.sql_type)

    def take(self, data: Sequence[bytes | None]) -> tuple[list[object], list[int]]:
        """The JVM's form of each, and the places of those that can't be read.

        Raises:
            RetriableError: what the serde needs does not answer.
            DeserializerEndedError: it raises what is no Exception.
        """
        native = _native_form(self.serde)
        if type(self.serde) is StringSerde and _are_texts(data):
            return list(data), []
        return read_each(native, data)

    def take_one(self, data: bytes | None) -> object:
        """One alone; raises what the serde does, or what is wrong with its value for the JVM."""
        return _native_form(self.serde)(data)


def intake_of(serde: Serde) -> Intake | None:
    """None where any bytes are what the serde reads."""
    return None if type(serde) is BytesSerde else Intake(serde)


class DeserializerEndedError(Exception):
    """A deserializer raised what is no Exception, as ``sys.exit()`` does; ``at``: the place of the bytes among those given."""

    def __init__(self, problem: BaseException, at: int) -> None:
        super().__init__(
            f"a deserializer raised {type(problem).__name__} ({said_by(problem)}), which ends a stream thread; to refuse bytes it"
            " raises an Exception"
        )
        self.at = at


def read_each(read: Callable[[bytes | None], object], data: Sequence[bytes | None]) -> tuple[list[object], list[int]]:
    """Each as ``read`` gives it, None and its place where that fails. Any error of a deserializer counts, as in Kafka Streams.

    Raises:
        RetriableError: from ``read``; the same bytes may be read later.
        ConfigError: from ``read``; no bytes can be read.
        DeserializerEndedError: ``read`` raises what is no Exception.
    """
    taken: list[object] = []
    unreadable: list[int] = []
    for at, one in enumerate(data):
        try:
            taken.append(read(one))
        except (RetriableError, ConfigError):
            raise
        except Exception:
            taken.append(None)
            unreadable.append(at)
        except BaseException as problem:
            raise DeserializerEndedError(problem, at) from problem
    return taken, unreadable


def as_handlers_get_it(serde: Serde, data: bytes | None) -> object:
    """One side of a record for an exception handler; what can't be read, which may be what is wrong, stays bytes."""
    try:
        return serde.deserialize(data)
    except RetriableError:
        raise
    except BaseException:
        return data


def _native_form(serde: Serde) -> Callable[[bytes | None], object]:
    fixed, read = fixed_width(serde.sql_type), serde.deserialize
    if transit_of(serde) is not None:

        def in_other_bytes(data: bytes | None) -> object:
            made = for_the_jvm(serde, data)
            return made if fixed is None or made is None else fixed.decode(made)

        return in_other_bytes
    if fixed is not None:
        return read if serde.sql_type != "boolean" else lambda data: None if data is None else int(read(data))
    if type(serde) is StringSerde:
        return lambda data: serde.serialize(serde.deserialize(data))

    def as_it_came(data: bytes | None) -> bytes | None:
        if data is not None:
            read(data)
        return data

    return as_it_came


def _are_texts(data: Sequence[bytes | None]) -> bool:
    try:
        b"\n".join([one for one in data if one is not None]).decode()  # a line break ends every sequence of bytes
    except UnicodeDecodeError:
        return False
    return True
