"""What a registry, or whatever is at its address, may answer: only what it says of a schema is a matter of the record."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp

from tidemill.errors import ConfigError, RetriableError, SerdeError
from tidemill.schema_registry import SchemaRegistry

SCHEMA = json.dumps({"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]})
RECORD = b"\0\0\0\0\7\2"
VALUE = {"id": 1}


class _At(BaseHTTPRequestHandler):
    """Answers each request with ``answer``: status, body and headers."""

    answer: ClassVar[tuple[int, bytes, dict[str, str]]]
    trickles: ClassVar[str] = ""
    """A path that begins so is answered a byte at a time, of the head as of the body; never longer between two than a client
    waits for one."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0) if self.command == "POST" else 0)
        if self.trickles and self.path.startswith(self.trickles):
            self._trickle()
            return
        status, body, headers = self.answer
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def _trickle(self) -> None:
        status, body, _ = self.answer
        with contextlib.suppress(ConnectionError):
            for byte in f"HTTP/1.1 {status} OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body:
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)
        self.close_connection = True

    def log_message(self, *said: Any) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _At) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def read(address: str, **settings: object) -> Any:
    return SchemaRegistry(address, {"max.retries": 0, **settings}).avro(SCHEMA).deserialize(RECORD)


def write(address: str, **settings: object) -> Any:
    return SchemaRegistry(address, {"max.retries": 0, **settings}).avro(SCHEMA).serialize(VALUE)


def said(code: int, text: str) -> bytes:
    return json.dumps({"error_code": code, "message": text}).encode()


@pytest.mark.parametrize("call", [read, write])
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (401, said(401, "Unauthorized"), {}),
        (403, said(403, "Forbidden"), {}),
        (404, said(404, "HTTP 404 Not Found"), {}),  # of a wrong path
        (404, b"<html>no such page</html>", {}),
        (408, b"", {}),
        (429, said(429, "too many requests"), {}),
        (500, said(50001, "error in the backend"), {}),
        (503, b"<html>no server</html>", {}),
        (302, b"", {"Location": "/login"}),
        (200, b"<html>please log in</html>", {}),
        (200, b"", {}),
        (200, b"null", {}),
        (200, b"[]", {}),
        (200, b'"x"', {}),
        (200, b'{"status": "up"}', {}),
        (200, b'{"schema": 5}', {}),
        (204, b"", {}),
        (200, b'{"schema', {"Content-Length": "1000"}),
        (200, b"{}", {"Content-Encoding": "gzip"}),
    ],
)
def test_a_registry_that_does_not_do_its_work_is_tried_again_and_nothing_of_it_is_kept(
    address: str, call: Callable[[str], Any], status: int, body: bytes, headers: dict[str, str]
) -> None:
    _At.answer = status, body, headers
    with pytest.raises(RetriableError, match=f"schema registry {address}"):
        call(address)
    _At.answer = 200, json.dumps({"schema": SCHEMA, "id": 7}).encode(), {}
    assert (read(address), write(address)) == (VALUE, RECORD)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, said(40403, "Schema 7 not found"), "the schema registry says Schema 7 not found"),
        (200, b'{"schema": "message User {int64 id = 1;}", "schemaType": "PROTOBUF"}', "id 7 is one of PROTOBUF"),
        (200, b'{"schema": "{}", "schemaType": "JSON"}', "id 7 is one of JSON"),
        (200, b'{"schema": "{"}', "can't read the writer's schema"),
    ],
)
def test_what_the_registry_says_of_a_records_schema_makes_the_record_unreadable(
    address: str, status: int, body: bytes, message: str
) -> None:
    _At.answer = status, body, {}
    with pytest.raises(SerdeError, match=f"{message}(.*; its schema's id is 7|; the topic holds other data)"):
        read(address)


@pytest.mark.parametrize("code", [409, 42201, 40401])
def test_a_schema_that_the_registry_refuses_is_not_written_with(address: str, code: int) -> None:
    _At.answer = int(str(code)[:3]), said(code, "no such schema here"), {}
    said_so = r"can't write a value: the schema registry says no such schema here \(.*\); its subject is "
    with pytest.raises(SerdeError, match=f"avro: {said_so}User$"):
        write(address)
    only_looks = SchemaRegistry(address, {"max.retries": 0}, auto_register=False)
    with pytest.raises(SerdeError, match=rf"protobuf: {said_so}google\.protobuf\.Timestamp, to which nothing is added"):
        only_looks.protobuf(Timestamp).serialize({})


def test_a_registry_that_never_answers_has_a_limit_unless_another_one_is_set() -> None:
    def limit(**settings: object) -> Any:
        return SchemaRegistry("http://127.0.0.1:9", settings).client()._rest_client.timeout

    assert (limit(), limit(timeout=3)) == (10, 3)


@pytest.mark.parametrize("call", [read, write])
def test_a_registry_that_answers_a_byte_at_a_time_has_the_same_limit(
    address: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _At.answer = 200, json.dumps({"schema": SCHEMA, "id": 7}).encode(), {}
    monkeypatch.setattr(_At, "trickles", "/")
    with pytest.raises(RetriableError):  # the whole answer would be right, after ten seconds and more
        call(address, timeout=1)
    monkeypatch.setattr(_At, "trickles", "")
    assert (read(address), write(address)) == (VALUE, RECORD)


@pytest.mark.parametrize("ways", [1, 2], ids=["one after the other", "ever more ways"])
def test_references_without_an_end_make_the_record_unreadable(
    address: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refer(self: _At) -> None:
        """Each schema refers to one with the next version; with several ways to the last of thirty, there are a milliard."""
        version = int(self.path.partition("/versions/")[2].partition("?")[0] or 0) + 1
        is_last = ways > 1 and version > 30
        references = [] if is_last else [{"name": f"N{way}", "subject": "s", "version": version} for way in range(ways)]
        body = json.dumps({"schema": SCHEMA, "id": 7, "subject": "s", "version": version - 1, "references": references}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    monkeypatch.setattr(_At, "do_GET", refer)
    with pytest.raises(SerdeError, match="the writer's schema refers to others on more than 1000 ways, or more than 64 deep"):
        read(address)


def test_imports_without_an_end_make_a_protobuf_record_unreadable(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refer(self: _At) -> None:
        version = int(self.path.partition("/versions/")[2].partition("?")[0] or 0) + 1
        file = FileDescriptorProto(name="f.proto", syntax="proto3", dependency=[f"f{version}.proto"]).SerializeToString()
        reference = {"name": f"f{version}.proto", "subject": "s", "version": version}
        text = {"schema": b64encode(file).decode("ascii"), "schemaType": "PROTOBUF", "references": [reference]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({**text, "id": 7, "subject": "s", "version": version - 1}).encode())

    monkeypatch.setattr(_At, "do_GET", refer)
    serde = SchemaRegistry(address, {"max.retries": 0}).protobuf(Timestamp)
    with pytest.raises(SerdeError, match="protobuf: the writer's schema refers to more than 1000 others, or more than 64 deep"):
        serde.deserialize(b"\0\0\0\0\7\0")


def bearer(address: str) -> dict[str, object]:
    """The settings of a client that gets its tokens there."""
    return {
        "bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "me", "bearer.auth.client.secret": "hush",
        "bearer.auth.scope": "all", "bearer.auth.issuer.endpoint.url": f"{address}/token",
        "bearer.auth.logical.cluster": "lsrc-1",
    }  # fmt: skip


TOKEN = {"access_token": "abc.def-123", "expires_in": 3600}


@pytest.mark.parametrize("call", [read, write])
def test_the_server_of_its_tokens_has_the_same_limit(
    address: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _At.answer = 200, json.dumps({"schema": SCHEMA, "id": 7, **TOKEN}).encode(), {"Content-Type": "application/json"}
    monkeypatch.setattr(_At, "trickles", "/token")
    with pytest.raises(RetriableError, match=r"Failed to retrieve token.*no whole answer within 1 s"):
        call(address, timeout=1, **bearer(address))
    monkeypatch.setattr(_At, "trickles", "")
    assert (read(address, **bearer(address)), write(address, **bearer(address))) == (VALUE, RECORD)


@pytest.mark.parametrize("of_tokens", [False, True], ids=["registry", "tokens"])
@pytest.mark.parametrize(
    "headers", [{}, {"Content-Encoding": "gzip"}, {"Content-Encoding": "gzip, gzip"}], ids=["as it is", "gzip", "twice"]
)
def test_an_answer_without_an_end_is_read_no_further_than_a_schema_may_be_long(
    address: str, headers: dict[str, str], of_tokens: bool
) -> None:
    body = b" " * (20 << 20)
    for _ in range(len(headers.get("Content-Encoding", "").split())):
        body = gzip.compress(body)
    _At.answer = 200, body, headers
    settings = bearer(address) if of_tokens else {}
    found = "is encoded as 'gzip, gzip'" if "," in str(headers) else "has more than 16777216 bytes"
    with pytest.raises(RetriableError, match=f"does not answer as one: .*{found}"):
        read(address, **settings)


def test_neither_token_nor_login_is_told_where_a_server_quotes_what_it_was_sent(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quote(self: _At) -> None:
        refused = said(401, f"no entry with {self.headers['Authorization']}"), 401
        body, status = (json.dumps(TOKEN).encode(), 200) if self.path == "/token" else refused
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    monkeypatch.setattr(_At, "do_GET", quote)
    for settings, scheme in ((bearer(address), "Bearer"), ({"basic.auth.user.info": "me:hush"}, "Basic")):
        with pytest.raises(RetriableError, match=rf"no entry with {scheme} \(hidden\)"):
            read(address, **settings)


def test_settings_with_which_there_can_be_no_client_are_refused_as_settings() -> None:
    with pytest.raises(ConfigError, match=r"No such file.*; correct its settings"):
        SchemaRegistry("https://127.0.0.1:9", {"ssl.ca.location": "/no/such/file"}).avro(SCHEMA).deserialize(RECORD)
