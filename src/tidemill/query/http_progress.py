"""Asks an instance how far its restoring tasks and standbys are (GET /tasks), for tools that look at a whole group."""

from __future__ import annotations

import ssl

from tidemill.errors import RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.query.document_reader import UnreadableDocumentError, read_document
from tidemill.query.group_documents import CopiesUnderWay
from tidemill.query.http_forward import document, fetch
from tidemill.task.progress import CopyProgress


def copies_at(
    host: HostInfo, *, token: str, timeout_s: float, tls: ssl.SSLContext | None = None
) -> tuple[CopyProgress, ...]:
    """RetriableError, with why, if the instance does not tell."""
    try:
        found = document(fetch(host, "/tasks", token=token, timeout_s=timeout_s, tls=tls))
        told = read_document(CopiesUnderWay, found)
    except UnreadableDocumentError as error:
        raise RetriableError(f"{host} answers, but is no instance of this version of Tidemill: {error}") from None
    except RetriableError as error:
        raise RetriableError(f"{host} {error}") from None
    return tuple(
        CopyProgress(task=one.task, is_active=one.role == "restoring", lag=one.lag, offsets_per_s=one.offsets_per_s)
        for one in told.tasks
    )
