"""A call to the brokers for several resources, retried until each has its answer or the timeout has passed.

Decides which of Kafka's errors pass by themselves (a leader is being elected, an offset is in an open transaction), which
end the call, and its error message. Requests and answers are ``client``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar
from weakref import WeakMethod

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidemill.config.values import DataClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, MissingRightError, RetriableError, StopError, TidemillError
from tidemill.forked import kept_in_children
from tidemill.ids import TopicPartition
from tidemill.kafka.security.access_errors import keeps_out, no_entry
from tidemill.kafka.security.clients import error_text
from tidemill.kafka.security.foreign_ports import foreign_answers
from tidemill.kafka.security.rights import CLUSTER, Operation, Resource, Right, lacks, missing_right

K = TypeVar("K")
Submitted = TypeVar("Submitted")
Answer = TypeVar("Answer")

_PAUSE_S = 0.1
_FIRST_TRY_S = 5.0
"""Limit of the first try; each further one has twice the time, for brokers that are slow. One that is gone never answers, and
within seconds others lead its partitions and do its other work."""
_PASSING = {
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NOT_CONTROLLER,
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR, KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD,
    KafkaError._RESOLVE, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
    KafkaError._NOENT,  # of a partition: no leader is known
    KafkaError._DESTROY_BROKER,  # the broker that was asked is no longer in the metadata
    KafkaError._DESTROY,  # a call of another thread, for which there was no answer, has replaced the client
}  # fmt: skip
# librdkafka asks the leader that it knows until its metadata is fetched again.
_OLD_METADATA = {
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT, KafkaError._TRANSPORT, KafkaError._TIMED_OUT,
}  # fmt: skip


class AdminCalls:
    """Makes calls through one librdkafka admin client; may be used from several threads.

    A client without an answer in time is replaced: where the brokers say that there are no brokers, as one does that was paused
    and fenced, librdkafka forgets all of them, and may never ask bootstrap.servers again (its issue 5301).
    """

    def __init__(self, settings: DataClientSettings) -> None:
        self.servers = str(settings.get("bootstrap.servers", ""))
        self.settings = settings
        self._heard: dict[bool, tuple[float, KafkaError]] = {}
        """The client's last error and when it came, by whether it only repeats that there is no broker. Any thread's call may
        have served the client; each takes what came since its own beginning."""
        self._changing = threading.Lock()
        self._client: AdminClient | None = self._new_client()

    @property
    def client(self) -> AdminClient:
        """StopError: it has been closed."""
        client = self._client
        if client is None:
            raise StopError("the admin client was called after it had been closed: its instance has ended")
        return client

    def close(self) -> None:
        """Ends the client's threads, at the latest with the call that another thread is making."""
        with self._changing:
            self._client = None

    def _new_client(self) -> AdminClient:
        remember = WeakMethod(self._remember)  # else client and calls hold each other: its threads go on until a collection

        def error_cb(error: KafkaError) -> None:
            if (remembering := remember()) is not None:
                remembering(error)

        # Its own complaints on standard error would repeat what the errors raised here say.
        try:
            return kept_in_children(AdminClient({**self.settings, "log_level": 2}, error_cb=error_cb))
        except (KafkaException, ValueError) as error:
            raise ConfigError(f"no admin client can be made of the settings: {error_text(error)}") from None

    def each(
        self,
        what: str,
        keys: Collection[K],
        submit: Callable[[list[K], float], Mapping[K, Future[Submitted]]],
        timeout_s: float,
        operation: Operation,
        answered: Callable[[Future[Submitted]], Answer | KafkaError],
        group: str = "",
    ) -> dict[K, Answer]:
        """The answer for each key; for keys that fail in passing `submit` is called again.

        ``operation``: the right that this needs on a topic, as which a key is read (or as one of its partitions), or on
        ``group``; MissingRightError names all that are missing. ``answered`` makes the answer of a done future: a value, or a
        KafkaError, returned or raised. RetriableError, after the time, says what is missing.
        """
        client = self.client
        began_s, deadline = time.monotonic(), Deadline.after(timeout_s)
        answers: dict[K, Answer] = {}
        pending = list(dict.fromkeys(keys))
        last: dict[K, KafkaError] = {}
        try_s = _FIRST_TRY_S
        while pending:
            left_s = deadline.left_s
            if left_s <= 0:
                self.replace(client)
                raise RetriableError(self._overdue(what, pending[0], len(pending), last, timeout_s, began_s))
            futures = submit(pending, max(min(left_s, try_s), 0.1))
            try_s *= 2
            self._await(futures, left_s, began_s)
            found = {key: _answer_of(future, answered) for key, future in futures.items()}
            self._require_passing(what, found, operation, group)
            for key, answer in found.items():
                if isinstance(answer, KafkaError):
                    last[key] = answer
                else:
                    answers[key] = answer
            pending = [key for key in pending if key not in answers]
            if pending:
                self._rest(deadline, fetch_metadata=any(last[key].code() in _OLD_METADATA for key in pending))
        return answers

    def one(
        self,
        what: str,
        submit: Callable[[float], Future[Submitted]],
        timeout_s: float,
        operation: Operation,
        answered: Callable[[Future[Submitted]], Answer | KafkaError],
        *,
        about: str,
    ) -> Answer:
        """The answer to a call about one topic or group, ``about``."""
        alone = self.servers
        found = self.each(
            what, [alone], lambda _, left_s: {alone: submit(left_s)}, timeout_s, operation, answered, group=about
        )
        return found[alone]

    def replace(self, client: AdminClient) -> None:
        """The next call begins at bootstrap.servers. ``client``, for which there was no answer, is ended with its last user."""
        with self._changing:
            if self._client is client:
                self._client = self._new_client()

    def missing(self, doing: str, rights: Iterable[Right]) -> MissingRightError:
        return missing_right(doing, rights, self.settings)

    def _await(self, futures: Mapping[K, Future[Submitted]], limit_s: float, began_s: float) -> None:
        deadline = Deadline.after(limit_s)
        left = set(futures.values())
        while left and not deadline.is_over:
            left = wait(left, timeout=0.2).not_done
            self.client.poll(0)  # serves the error callback
            trouble = self._trouble_since(began_s)
            if trouble is not None and keeps_out(trouble):
                raise no_entry(self.servers, trouble, self.settings)

    def _require_passing(self, what: str, found: Mapping[K, object], operation: Operation, group: str) -> None:
        """Raises the first error that doesn't pass by itself; missing rights, which don't either, all in one."""
        missing: set[Right] = set()
        for key, error in found.items():
            if not isinstance(error, KafkaError) or error.code() in _PASSING:
                continue
            resource = lacks(error)
            if resource is None:
                raise refusal(f"{what} ({key})", error)
            missing.add(Right.of(resource, _named(resource, key, group), operation))
        if missing:
            raise self.missing(what, missing)

    def _rest(self, deadline: Deadline, *, fetch_metadata: bool) -> None:
        """A pause before the next try, at most until the deadline."""
        if fetch_metadata:
            with suppress(KafkaException):  # the next try says what is wrong
                self.client.list_topics(timeout=max(0.1, min(5.0, deadline.left_s)))
        time.sleep(min(_PAUSE_S, deadline.left_s))

    def _remember(self, error: KafkaError) -> None:
        self._heard[error.code() == KafkaError._ALL_BROKERS_DOWN] = time.monotonic(), error

    def _trouble_since(self, began_s: float) -> KafkaError | None:
        found = (self._heard.get(is_repetition) for is_repetition in (False, True))
        return next((heard[1] for heard in found if heard is not None and heard[0] >= began_s), None)

    def _overdue(
        self, what: str, key: K, count: int, last: Mapping[K, KafkaError], timeout_s: float, began_s: float
    ) -> str:
        more = f" and {count - 1} more" if count > 1 else ""
        subject = "" if key == self.servers else f" ({key}{more})"
        error = last.get(key)
        reasons = [error.str()] if error is not None else []
        trouble = self._trouble_since(began_s)
        if trouble is not None:
            reasons.append(trouble.str())
        return f"{what}{subject}: not done after {timeout_s:g} s: {'; '.join(reasons) or 'no answer'}; {self.where_to_look()}"

    def where_to_look(self) -> str:
        """What to do where no broker has answered."""
        has_tls = str(self.settings.get("security.protocol", "")).upper().endswith("SSL")  # whose failures the client tells
        foreign = [] if has_tls else foreign_answers(self.servers)
        return "; ".join(foreign) or (
            f"check that the brokers at {self.servers} run and can be reached, and that kafka.security.protocol is theirs"
        )


def _answer_of(future: Future[Submitted], answered: Callable[[Future[Submitted]], Answer | KafkaError]) -> Answer | KafkaError:
    """What ``answered`` makes of it, an error that it raises as a value; a future that is not done has timed out."""
    if not future.done():
        return KafkaError(KafkaError._TIMED_OUT)
    try:
        return answered(future)
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        return error
    finally:
        # The future keeps its exception, whose traceback would keep the callers, and with them the client, until a collection.
        if (kept := future.exception()) is not None:
            kept.with_traceback(None)


def result_of(done: Future[Submitted]) -> Submitted:
    """The answer as the client gives it."""
    return done.result()


def refusal(what: str, error: KafkaError) -> TidemillError:
    """The exception for an error that doesn't pass by itself."""
    return StopError(f"{what}: {error.str()} ({error.name()})")


def _named(resource: Resource, key: object, about: str) -> str:
    """The resource on which a right is missing: a partition's topic counts; ``about`` where the call is about one thing only."""
    if resource is Resource.CLUSTER:
        return CLUSTER
    return about or str(key.topic if isinstance(key, TopicPartition) else key)
