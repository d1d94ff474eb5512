"""Which broker a request goes to while other threads find out that the coordinator has gone."""

from __future__ import annotations

from typing import Any, cast

from kafka.protocol.api_message import ApiMessage

from tidemill.kafka.group.client import Connection, GroupClient

REQUEST = cast("ApiMessage", "a request")


class Forgotten(GroupClient):
    """Another thread forgets the coordinator after each look at it."""

    known: int | None = 5

    def __init__(self) -> None:
        self.asked: list[tuple[object, int | None]] = []
        servers = {"bootstrap_servers": "127.0.0.1:1"}
        super().__init__(servers, group_id="g", client_id="c", report_unreachable_after_ms=1, report=lambda _: None)
        self.known = 5

    @property
    def _coordinator(self) -> int | None:  # type: ignore[override]
        known, self.known = self.known, None
        return known

    @_coordinator.setter
    def _coordinator(self, found: int | None) -> None:
        self.known = found

    def _send(self, message: ApiMessage, node: int | str | None, timeout_ms: int | None) -> Any:
        self.asked.append((node, timeout_ms))
        return message


def test_a_request_goes_to_the_coordinator_that_was_known_though_another_thread_forgets_it() -> None:
    prompt, held, leaving = Forgotten(), Forgotten(), Forgotten()
    assert prompt.request(REQUEST, Connection.PROMPT) is REQUEST
    assert held.request(REQUEST, Connection.HELD) is REQUEST
    assert leaving.request_known(REQUEST, Connection.PROMPT, timeout_ms=7) is REQUEST
    assert (prompt.asked, held.asked, leaving.asked) == ([(5, None)], [("coordinator-5", None)], [(5, 7)])
