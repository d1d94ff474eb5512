"""Asks an instance how far its restoring tasks and standbys are (GET /tasks), for tools that look at a whole group."""

from __future__ import annotations

import http.client
import json

from tidemill.errors import RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.task.progress import CopyProgress


def copies_at(host: HostInfo, *, token: str, timeout_s: float) -> tuple[CopyProgress, ...]:
    """RetriableError, with why, if the instance does not tell."""
    connection = http.client.HTTPConnection(host.host, host.port, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request("GET", "/tasks", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise RetriableError(f"{host} does not answer ({type(error).__name__}: {error})") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise RetriableError(f"{host} answers with status {answer.status}")
    try:
        return tuple(
            CopyProgress(
                task=TaskId.parse(told["task"]),
                is_active=told["role"] == "restoring",
                lag=int(told["lag"]),
                offsets_per_s=told["offsets_per_s"],
            )
            for told in json.loads(body)["tasks"]
        )
    except (ValueError, KeyError, TypeError):
        raise RetriableError(f"{host} answers, but is no instance of this version of Tidemill") from None
