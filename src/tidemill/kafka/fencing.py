"""Ending the transactions that vanished members left open, so that nobody waits for their time-out (rule 7).

Decides whose transactions those are: ids of this application, under way, of a process that is not in the group any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from confluent_kafka import KafkaException, Producer

from tidemill.kafka.admin import Admin

log = logging.getLogger("tidemill.fencing")
_LIMIT_S = 15.0
_UUID_LENGTH = 36


def transactional_id(application_id: str, process_id: str, thread: int) -> str:
    """Stable over restarts, and derivable from what a member's subscription says of it."""
    return f"{application_id}-{process_id}-{thread}"


def fence_vanished(admin: Admin, settings: Mapping[str, object], application_id: str, processes: Set[str]) -> None:
    """Aborts open transactions of processes that are not among ``processes``."""
    prefix = application_id + "-"
    for name in admin.open_transactions(prefix):
        process = name.removeprefix(prefix)[:_UUID_LENGTH]
        if name.startswith(prefix) and len(process) == _UUID_LENGTH and process not in processes:
            fence(settings, name)


def fence(settings: Mapping[str, object], name: str) -> None:
    """Takes over ``name``: its owner can commit nothing any more, what it had open is aborted."""
    try:
        Producer({**settings, "transactional.id": name}).init_transactions(_LIMIT_S)
        log.info("event=fenced transactional_id=%s", name)
    except KafkaException as problem:  # the broker ends it when its time is over
        log.warning("event=fencing-failed transactional_id=%s problem=%s", name, problem.args[0].str())
