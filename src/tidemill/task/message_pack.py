"""Values as MessagePack, for messages between the driver, the source step and the later steps of a stream thread.

Decides what a reader accepts: bytes that decode into the type it expects, field by field. The types are the one definition of
what travels (``batch``, ``control.messages``); all processes of an instance run one version of Tidemill, so there is no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder

from tidemill.errors import MisfitError, StopError

T = TypeVar("T")
_SHOWN = 60
"""Bytes of a message that is refused, in the error."""


def _of_own_type(found: object) -> object:
    """Other mappings, and subclasses such as numpy's float64: fields allow them, the encoder only knows Python's own."""
    if isinstance(found, Mapping):
        return dict(found)
    for kind in (int, float, str):
        if isinstance(found, kind):
            return kind(found)
    name = type(found).__qualname__
    raise TypeError(f"{found!r:.200} can't be sent: it is of {name}, expected Python's own types and dataclasses")


_encoder = Encoder(enc_hook=_of_own_type)
_decoders: dict[type[Any], Decoder[Any]] = {}


def pack(value: object) -> bytes:
    """``value``: of dataclasses, named tuples, enums, mappings and sequences. StopError for text that UTF-8 can't hold."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as problem:
        raise StopError(
            f"{problem.object!r:.200} can't be sent between the driver and its workers: it is no UTF-8 ({problem.reason}); "
            "give folders and topics names in UTF-8"
        ) from problem


def unpack(data: bytes, kind: type[T]) -> T:
    """The value that ``pack`` got. MisfitError if these are not the bytes of such a value."""
    try:
        found: T = (_decoders.get(kind) or _decoders.setdefault(kind, Decoder(kind))).decode(data)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise MisfitError(
            f"{len(data)} bytes that begin with {data[:_SHOWN]!r} are no {kind.__name__}: {problem}; "
            "the driver and its workers must run the same version of Tidemill"
        ) from problem
    return found


def as_utf8(text: str) -> str:
    """``text`` with lone surrogates as escapes, for messages that quote a record: UTF-8 has no such characters."""
    return text.encode(errors="backslashreplace").decode()
