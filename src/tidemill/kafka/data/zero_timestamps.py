"""Producers that write the timestamp 0 as 0. librdkafka takes 0 for "now", in each of its produce calls.

Decides how such a producer is made, and that none is used before it has shown what it does. A record of time 0 is handed over
with ``PLACEHOLDER``, and an ``on_send`` interceptor (librdkafka's own interface for looking at each record before it is queued,
called by ``produce`` itself) writes 0 where the placeholder is. confluent-kafka does not offer interceptors, so:

- The client is made a second time, from a copy of its configuration with the interceptor, and takes the first one's place in the
  ``Producer``. Both are librdkafka's public calls; where the ``Producer`` holds its client is the pinned version's layout.
- Where a message holds its timestamp is no interface either. It is found in a message whose timestamp is known, and what was
  written is read back with ``rd_kafka_message_timestamp``.

Neither is taken on trust: before the first such producer, a process of its own finds the place, writes to librdkafka's own
stand-in for a broker and reads the records again. Another layout costs that process, and the caller a ConfigError. Producers
without a record of time 0 are not touched. When one is needed is ``record_producer``'s.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import threading
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition, cimpl, version

from tidemill.errors import ConfigError

PLACEHOLDER = -(2**62) + 1_970_01_01
"""Replaces 0 in the call of ``produce``; as a time it would be 146 million years ago."""

_PRODUCER = 0
"""RD_KAFKA_PRODUCER."""
_NAME = b"tidemill-zero-timestamps"
_SCANNED_BYTES = 256
"""Bytes searched from the start of a message: no more than a message with the probe's value has."""
_PROBE_VALUE = b"v" * 1_024
_PROOF_LIMIT_S = 120
_PROOF = "import sys; sys.path[:] = {path!r}; from tidemill.kafka.data.zero_timestamps import prove; print(prove())"

_ON_NEW = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
_ON_SEND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Written(threading.local):
    zeros = 0


_written = _Written()
"""Set by the interceptor, which runs in the thread that calls ``produce``."""
_place: int | None = None
"""Offset of the timestamp within a message, in bytes; the same for all messages of a version of librdkafka."""


def zeros_written() -> int:
    """Number of placeholders that this thread's calls of ``produce`` have turned into 0."""
    return _written.zeros


def producer_of_zeros(settings: Mapping[str, object]) -> Producer:
    """A producer that writes ``PLACEHOLDER`` as 0.

    Raises:
        ConfigError: this version of confluent-kafka has not shown that it does.
    """
    global _place
    place, reason = _proved()
    if place is None:
        raise ConfigError(
            f"A record has the timestamp 0 (1970-01-01), and confluent-kafka {version()[0]} can't be made to write it "
            f"({reason}): it would write the current time. Install the version that Tidemill requires, or give the records a "
            "timestamp above 0."
        )
    _place = place
    return _made(settings)


@functools.cache
def _proved() -> tuple[int | None, str]:
    """Result of ``prove`` in a process of its own, or None and the reason."""
    try:
        done = subprocess.run(  # this very interpreter and module
            [sys.executable, "-c", _PROOF.format(path=sys.path)],
            capture_output=True, text=True, timeout=_PROOF_LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        return None, f"the trial has failed: {problem}"
    if done.returncode == 0:
        return int(done.stdout), ""
    said = done.stderr.strip().splitlines()
    return None, f"the trial ended with code {done.returncode}{': ' + said[-1] if said else ''}"


def prove() -> int:
    """Finds where messages hold their timestamp, writes records of time 0 and others to a stand-in for a broker, and reads them.

    For a process of its own, which it may end. RuntimeError if the times read are others.
    """
    producer = _made({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 50})
    [broker, *_] = producer.list_topics(timeout=30).brokers.values()
    wanted = [0, 1_700_000_000_000, 0, 1, 0]
    for at, timestamp in enumerate(wanted):
        producer.produce("times", _PROBE_VALUE, None if at % 2 else b"key", 0, timestamp=timestamp or PLACEHOLDER)
    if producer.flush(30) or zeros_written() != wanted.count(0) or _place is None:
        raise RuntimeError(f"{zeros_written()} of {wanted.count(0)} records of time 0 were written")
    consumer = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "proof", "log_level": 0})
    consumer.assign([TopicPartition("times", 0, 0)])
    found: list[int] = []
    for _ in range(300):
        found += [message.timestamp()[1] for message in consumer.consume(len(wanted), 0.1) if message.error() is None]
        if len(found) >= len(wanted):
            break
    consumer.close()
    if found != wanted:
        raise RuntimeError(f"wrote the times {wanted}, read {found}")
    return _place


def _made(settings: Mapping[str, object]) -> Producer:
    """A producer whose client has the interceptor.

    confluent-kafka's callbacks find the ``Producer`` through the configuration, whose copy has them too.
    """
    library = _library()
    producer = Producer(dict(settings))
    slot = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)  # the first field behind Python's own
    first, problem = slot.value, ctypes.create_string_buffer(512)
    conf = library.rd_kafka_conf_dup(library.rd_kafka_conf(first))
    private_key = settings.get("ssl.key.pem")
    if private_key is not None:  # the one setting that a client wipes when it has read it
        library.rd_kafka_conf_set(conf, b"ssl.key.pem", str(private_key).encode(), problem, len(problem))
    library.rd_kafka_conf_interceptor_add_on_new(conf, _NAME, _ON_NEW_CALLED, None)
    client = library.rd_kafka_new(_PRODUCER, conf, problem, len(problem))
    if not client:
        library.rd_kafka_conf_destroy(conf)
        raise ConfigError(f"The producer can't be set up: {problem.value.decode(errors='replace')}")
    slot.value = client
    library.rd_kafka_destroy(first)
    if "oauth_cb" in settings:  # what confluent-kafka does with a new client
        library.rd_kafka_sasl_background_callbacks_enable(client)
    if "logger" in settings:
        library.rd_kafka_set_log_queue(client, None)
    return producer


@functools.cache
def _library() -> ctypes.CDLL:
    """librdkafka as confluent-kafka has loaded it: its functions are found through the module that is linked with it."""
    library = ctypes.CDLL(cimpl.__file__)
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_conf", pointer, [pointer]),
        ("rd_kafka_conf_dup", pointer, [pointer]),
        ("rd_kafka_conf_set", number, [pointer, text, text, pointer, ctypes.c_size_t]),
        ("rd_kafka_conf_destroy", None, [pointer]),
        ("rd_kafka_conf_interceptor_add_on_new", number, [pointer, text, _ON_NEW, pointer]),
        ("rd_kafka_interceptor_add_on_send", number, [pointer, text, _ON_SEND, pointer]),
        ("rd_kafka_new", pointer, [number, pointer, pointer, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_message_timestamp", ctypes.c_int64, [pointer, pointer]),
        ("rd_kafka_sasl_background_callbacks_enable", pointer, [pointer]),
        ("rd_kafka_set_log_queue", number, [pointer, pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _on_new(client: int, _conf: int, _opaque: int, _problem: bytes, _size: int) -> int:
    return int(_library().rd_kafka_interceptor_add_on_send(client, _NAME, _ON_SEND_CALLED, None))


def _on_send(_client: int, message: int, _opaque: int) -> int:
    """Counts only what reads as 0 afterwards: the writer compares the count with what it has handed over."""
    global _place
    read = _library().rd_kafka_message_timestamp
    if read(message, None) == PLACEHOLDER:
        if _place is None:  # in the process of the trial
            _place = _place_of_the_timestamp(message)
        field = ctypes.c_int64.from_address(message + _place)
        if field.value == PLACEHOLDER:
            field.value = 0
            _written.zeros += read(message, None) == 0
    return 0


def _place_of_the_timestamp(message: int) -> int:
    """Offset of the placeholder in the message; there must be one only."""
    held = (ctypes.c_int64 * (_SCANNED_BYTES // 8)).from_address(message)
    [place] = [8 * at for at, value in enumerate(held) if value == PLACEHOLDER]
    return place


_ON_NEW_CALLED, _ON_SEND_CALLED = _ON_NEW(_on_new), _ON_SEND(_on_send)
"""References kept for the life of the process: clients call them as long as they exist."""
