"""A registry's login, in its address or in its settings: it is used, and nothing that is said or logged holds it."""

from __future__ import annotations

import base64
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from tidemill.errors import ConfigError, RetriableError
from tidemill.schema_registry import SchemaRegistry


@pytest.mark.parametrize(
    ("url", "bare", "login"),
    [
        ("http://me:hush@localhost:1", "http://localhost:1", "me:hush"),
        ("https://me:hu%40sh%2F@host/path", "https://host/path", "me:hu@sh/"),
        ("http://me:hu@/sh@host", "http://host", "me:hu@/sh"),
        ("http://hush@host", "http://host", "hush:"),
        ("me:hush@host", "host", "me:hush"),
        ("http://me:hush@one:1,http://me:hush@two:1", "http://one:1,http://two:1", "me:hush"),
        ("http://me:hush@one:1,http://two:1", "http://one:1,http://two:1", "me:hush"),
    ],
)
def test_a_login_in_the_address_is_kept_apart_from_it(url: str, bare: str, login: str) -> None:
    registry = SchemaRegistry(url, {"timeout": 1})
    assert (registry.url, registry.settings) == (bare, {"timeout": 1, "basic.auth.user.info": login})
    assert "hush" not in repr(registry.avro('"string"'))


def test_an_address_without_a_login_stays_as_it_is() -> None:
    for url in ("http://one:1, http://two:1", "mock://a", "http://host/path"):
        assert (SchemaRegistry(url).url, SchemaRegistry(url).settings) == (url, {})


def test_a_login_in_the_address_is_used_and_never_told(caplog: pytest.LogCaptureFixture) -> None:
    class Refuses(BaseHTTPRequestHandler):
        logins: ClassVar[list[str]] = []

        def do_POST(self) -> None:
            self.logins.append(base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode())
            self.send_response(401)
            self.end_headers()
            self.wfile.write(b'{"error_code": 401, "message": "no place for me:hush, says hush"}')

        def log_message(self, *said: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        registry = SchemaRegistry(f"http://me:hush@127.0.0.1:{server.server_port}", {"max.retries": 0, "timeout": 60})
        with caplog.at_level(logging.DEBUG), pytest.raises(RetriableError, match="no place for") as refused:
            registry.avro('"string"').serialize("x")
        server.shutdown()
    assert Refuses.logins == ["me:hush"]
    assert "hush" not in f"{refused.value} {caplog.text}"
    assert f"127.0.0.1:{server.server_port}" in caplog.text, "the client does log its requests"


def test_what_the_client_or_the_registry_refuses_is_reported_without_the_login() -> None:
    with pytest.raises(ConfigError, match="two logins are given; give one") as refused:
        SchemaRegistry("http://me:hush@host", {"basic.auth.user.info": "you:hush"})
    assert "hush" not in str(refused.value)
    with pytest.raises(ConfigError, match="two logins are given; give one") as refused:
        SchemaRegistry("http://me:hush@one,http://you:hush@two")
    assert "hush" not in str(refused.value)
    with pytest.raises(ConfigError, match="Invalid url host") as refused:
        SchemaRegistry("me:hush@host").client()
    assert "hush" not in str(refused.value)
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:9 does not answer as one: Connect") as silent:
        SchemaRegistry("http://me:hush@127.0.0.1:9", {"max.retries": 0, "timeout": 1}).avro('"string"').serialize("x")
    assert "hush" not in str(silent.value)
