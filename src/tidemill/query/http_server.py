"""The HTTP server of an instance: uvicorn on a thread of its own, from before the group is joined until the threads have ended.

Decides that the address is bound at once, so that one in use is an error before anything starts and a port that the system chose
(0) can be sent to the others. Requests are not logged: keys may be confidential.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import uvicorn

from tidemill.config.slices import ReadsConfig
from tidemill.query.http_app import ReadsApp
from tidemill.query.http_connections import MOST_HEAD_BYTES, ConnectionLimits, LimitedServer
from tidemill.query.http_forward import HttpInstances
from tidemill.query.http_status import StatusPages
from tidemill.query.http_tls import HttpAccess
from tidemill.query.metadata import HostMap
from tidemill.query.routing import Router, StoreDirectory
from tidemill.query.status_source import StatusSource

_READERS = 4
_FORWARDERS = 16
_PAGE_READERS = 2
_PAGE_FORWARDERS = 8
"""Threads of long questions. Reading a page is Python, which runs one thread at a time: more threads read no more pages."""
_CLOSE_LIMIT_S = 3.0
_TAKE_LIMIT_S = 60.0
"""Time that a client may take to receive an answer, beyond the time in which the answer is looked for."""


class HttpServer:
    """Answers from ``start`` to ``close``."""

    def __init__(
        self,
        listening: socket.socket,
        directory: StoreDirectory,
        config: ReadsConfig,
        access: HttpAccess,
        *,
        status: StatusSource | None = None,
        hosts: Callable[[], HostMap] = HostMap,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._listening = listening
        tls, timeout_s = access.tls, config.http_timeout_ms / 1e3
        self._here = ThreadPoolExecutor(_READERS, thread_name_prefix="tidemill-reads")
        self._there = ThreadPoolExecutor(_FORWARDERS, thread_name_prefix="tidemill-forwards")
        self._pages_here = ThreadPoolExecutor(_PAGE_READERS, thread_name_prefix="tidemill-page-reads")
        self._pages_there = ThreadPoolExecutor(_PAGE_FORWARDERS, thread_name_prefix="tidemill-page-forwards")
        others = HttpInstances(access.token, access.client)
        router = Router(
            directory=directory,
            remote=others,
            here=self._here,
            there=self._there,
            pages_here=self._pages_here,
            pages_there=self._pages_there,
            timeout_s=timeout_s,
        )
        pages = None
        if status is not None:
            own_host = directory.own_host
            pages = StatusPages(
                source=status, hosts=hosts, own_host=own_host, others=others, here=self._here, there=self._there
            )
        self.app = ReadsApp(
            router=router,
            application_id=config.application_id,
            token=access.token,
            any_name=tls is not None and tls.required,
            max_staleness=config.http_max_staleness,
            max_staleness_ms=config.http_max_staleness_ms,
            status=pages,
        )
        served = uvicorn.Config(
            self.app,
            loop="asyncio",
            http="h11",
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ssl_context_factory=None if tls is None else lambda _config, _default: tls.server,
        )
        self._server = LimitedServer(served, limits or ConnectionLimits(answer_limit_s=timeout_s + _TAKE_LIMIT_S))
        self._thread = threading.Thread(target=self._run, name="tidemill-http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Requests under way have a moment to end."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_CLOSE_LIMIT_S)
        self._listening.close()
        for executor in (self._here, self._there, self._pages_here, self._pages_there):
            executor.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listening]))
