"""Keys and values as the JSON of HTTP has them, and keys as requests write them in their address.

Decides how values are written (bytes as hex; numbers that JSON lacks as "NaN", "Infinity"; times and decimals as text; objects as
they are) and how a key's text is read back. A key can be asked for as it is shown: that is why bytes within keys of JSON are
base64, as in their documents, and windowed keys are read from the [key, start, end] that they are shown as. Where another program
has written a key in its own way (spaces in JSON, for example) its text gives other bytes; ``has_text`` tells.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date

from tidemill.dsl.json_writing import members_of
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.errors import QueryError, RetriableError, SerdeError
from tidemill.query.store_info import StoreInfo
from tidemill.topology.values import Serde
from tidemill.topology.windows import Windowed

_INTEGERS, _FLOATS = ("bigint", "int", "smallint"), ("double", "float")


def plain(value: object, *, of_bytes: Callable[[bytes], str] = bytes.hex) -> object:
    """The value as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return of_bytes(bytes(value))
    if isinstance(value, Mapping):
        return {str(name): plain(inner, of_bytes=of_bytes) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, of_bytes=of_bytes) for inner in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    members = members_of(value)
    return str(value) if members is None else plain(members, of_bytes=of_bytes)


def shown_key(store: StoreInfo, key: bytes, *, hex_keys: bool) -> object:
    """SerdeError if the store's serde can't read it."""
    return key.hex() if hex_keys else _shown(store.key_serde, store.key(key))


def key_text(store: StoreInfo, key: bytes, *, hex_keys: bool) -> str:
    """A key as a request has it in its address."""
    shown = shown_key(store, key, hex_keys=hex_keys)
    is_as_shown = isinstance(shown, str) and (hex_keys or store.key_serde.name != "json")  # a text as JSON is in quotes
    return str(shown) if is_as_shown else json.dumps(shown, ensure_ascii=False)


def has_text(store: StoreInfo, key: bytes) -> bool:
    """True if the key's text, read back, is the key."""
    try:
        return key_bytes(store, key_text(store, key, hex_keys=False), "text") == key
    except QueryError:
        return False


def key_bytes(store: StoreInfo, text: str, form: str) -> bytes:
    """A key as the store has it; ``form``: how the text gives it, text or hex. QueryError if the text is none of its keys."""
    if form == "hex":
        return from_hex(text)
    if form != "text":
        raise QueryError(f"keys is {form[:40]!r}, expected text or hex")
    try:
        return store.key_bytes(_read(store.key_serde, text))
    except (QueryError, RetriableError):
        raise
    except SerdeError as error:
        raise QueryError(f"{store.name}: this can't be one of its keys: {error}") from None
    except Exception:  # a serde of the application's own may raise any
        kind = store.key_serde.name
        raise QueryError(
            f"{text[:80]!r} is no key of {store.name}, whose keys are {kind}; give one, or its bytes as hex with keys=hex"
        ) from None


def from_hex(text: str) -> bytes:
    try:
        _require_plain(text)
        return bytes.fromhex(text)
    except ValueError:
        raise QueryError(f"{text[:80]!r} is not hex: expected two of 0-9 and a-f for each byte") from None


def _shown(serde: Serde, key: object) -> object:
    if isinstance(key, Windowed) and isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return [_shown(serde.inner, key.key), key.start, key.end]
    return plain(key, of_bytes=_base64) if serde.name == "json" else plain(key)


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _read(serde: Serde, text: str) -> object:
    """The key that the text of an address stands for. ValueError, RecursionError, SerdeError: none of the serde's."""
    if serde.name == "json":  # times and decimals are text there
        return serde.deserialize(text.encode("utf-8", "surrogatepass"))
    if serde.sql_type == "string":
        return text
    if serde.sql_type == "binary":
        _require_plain(text)
        return bytes.fromhex(text)
    if serde.sql_type in (*_INTEGERS, *_FLOATS):
        _require_plain(text)
        return int(text) if serde.sql_type in _INTEGERS else float(text)
    return _from_json(serde, json.loads(text))


def _from_json(serde: Serde, shown: object) -> object:
    """The key that is shown like this. Errors as ``_read``."""
    if isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        if not isinstance(shown, list) or len(shown) != len(Windowed._fields):
            raise SerdeError(f"{serde.name}: expected [key, start, end]")
        key, start, end = shown
        return Windowed(_from_json(serde.inner, key), start, end)
    if serde.name == "json":
        return serde.deserialize(json.dumps(shown).encode())
    is_text = serde.sql_type == "binary" or (serde.sql_type in _FLOATS and shown in ("NaN", "Infinity", "-Infinity"))
    return _read(serde, shown) if is_text and isinstance(shown, str) else shown


def _require_plain(text: str) -> None:
    """ValueError for what Python reads in numbers and hex next to digits: spaces, underscores, digits of other scripts."""
    if not text.isascii() or "_" in text or any(character.isspace() for character in text):
        raise ValueError(text)
