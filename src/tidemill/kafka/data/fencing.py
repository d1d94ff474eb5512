"""Ending the transactions that vanished members left open, so that no reader waits for their time-out (rule 7).

Decides whose transactions those are: ids of this application, under way, of a process that is not in the group any more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Set

from tidemill.config.values import DataClientSettings, GroupClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import RetriableError, TidemillError
from tidemill.kafka.admin.group_offsets import open_transactions
from tidemill.kafka.data.producer import fence
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.fencing")

_LIMIT_S = 15.0
"""Seconds after which no further transaction is aborted: brokers do it after ``transaction.timeout.ms``, 10 s by default."""


def transactional_id(application_id: str, process_id: str, thread: int) -> str:
    """Stable over restarts, and derivable from what a member's subscription says of it."""
    return f"{application_id}-{process_id}-{thread}"


def fence_vanished(
    group_settings: GroupClientSettings, settings: DataClientSettings, application_id: str, processes: Set[str]
) -> None:
    """Aborts open transactions of processes that are not among ``processes``, as many as the limit allows: the group waits.

    ``group_settings``: kafka-python's; ``settings``: a producer's.
    """
    prefix = application_id + "-"
    try:
        names = open_transactions(group_settings, prefix)
    except RetriableError as problem:  # the broker ends them when their time is over
        log.warning(LogEvent("fencing-skipped", problem=problem))
        return
    deadline = Deadline.after(_LIMIT_S)
    owners = {name: _process_in(name.removeprefix(prefix)) for name in names}
    vanished = [name for name, process in owners.items() if process is not None and process not in processes]
    for at, name in enumerate(vanished):
        if deadline.is_over:
            log.warning(LogEvent("fencing-skipped", problem=f"not done within {_LIMIT_S:g} s", transactional_ids=vanished[at:]))
            return
        fence_quietly(settings, name)


def _process_in(rest: str) -> str | None:
    """The process id in what follows the application's id, None if that is another application's, whose id only begins so."""
    found = re.fullmatch(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d+", rest)
    return found[1] if found else None


def fence_quietly(settings: DataClientSettings, name: str) -> None:
    """Takes over ``name``; if that fails, the broker ends its transaction when the time is over."""
    try:
        fence(settings, name)
        log.info(LogEvent("fenced", transactional_id=name))
    except TidemillError as problem:
        log.warning(LogEvent("fencing-failed", transactional_id=name, problem=problem))
