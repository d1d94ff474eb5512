"""HTTPS with certificates on both sides: who has none learns nothing, and instances ask each other with their own."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.query.stand_ins import StandInDirectory, host_map, reads_config
from tests.security.certificates import Authority
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.membership.wire import host_of
from tidemill.query.http_listening import address_of, listen
from tidemill.query.http_server import HttpServer
from tidemill.query.http_tls import HttpAccess, HttpTls, http_tls

NEEDED = {"application.id": "app", "bootstrap.servers": "h:1"}
PASSWORD = "marked-secret-of-the-key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def _tls(authority: Authority) -> HttpTls:
    own = authority.issue("instance", "127.0.0.1", "localhost").pem(PASSWORD)
    made = http_tls(str(own), str(authority.pem), PASSWORD, required=True)
    assert made is not None
    return made


@pytest.fixture
def pair(authority: Authority) -> Any:
    listening = [listen("127.0.0.1:0"), listen("127.0.0.1:0")]
    one, two = (host_of(address_of(each)) for each in listening)
    hosts = host_map({one: (0,), two: (1, 2)}, {})
    entries = {f"word{number}": number for number in range(10)}
    directories = [
        StandInDirectory(own_host=own, hosts=hosts, copies=dict.fromkeys(copies), entries=entries)
        for own, copies in ((one, (0,)), (two, (1, 2)))
    ]
    servers = [
        HttpServer(at, directory, reads_config(), HttpAccess(tls=_tls(authority)))
        for at, directory in zip(listening, directories, strict=True)
    ]
    for server in servers:
        server.start()
    yield one
    for server in servers:
        server.close()


def _client(authority: Authority, certificate: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.pem))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def _ask(host: Any, context: ssl.SSLContext | None, name: str = "") -> Any:
    kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    connection = kind(host.host, host.port, timeout=60, **({} if context is None else {"context": context}))
    connection.request("GET", "/stores/counts", headers={"Host": name} if name else {})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_who_shows_a_trusted_certificate_is_answered_by_all_instances_under_any_name(pair: Any, authority: Authority) -> None:
    context = _client(authority, authority.issue("reader").pem())
    status, told = _ask(pair, context, name="some.other.name")
    assert status == 200
    assert len(told["entries"]) == 10  # two partitions are the other instance's, which was asked over TLS too


def test_who_shows_none_or_another_authority_s_learns_nothing(pair: Any, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("reader").pem()
    for certificate in (None, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            _ask(pair, _client(authority, certificate))
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        _ask(pair, None)


@pytest.mark.parametrize(("has_truststore", "trusted"), [(True, ["authority"]), (False, ["of this machine"])])
def test_other_instances_are_trusted_by_the_truststore_alone_and_without_one_by_the_machines_authorities(
    has_truststore: bool, trusted: list[str], authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "of this machine").pem))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    own = str(authority.issue("instance", "127.0.0.1").pem())
    made = http_tls(own, str(authority.pem) if has_truststore else "", "", required=False)
    assert made is not None
    assert [dict(part for (part,) in found["subject"])["commonName"] for found in made.client.get_ca_certs()] == trusted


@pytest.mark.parametrize("keystore", ["/no/such.pem", "AUTHORITY"])
def test_a_keystore_that_is_none_is_one_sentence(keystore: str, authority: Authority) -> None:
    path = str(authority.pem) if keystore == "AUTHORITY" else keystore
    with pytest.raises(ConfigError, match=r"tidemill\.http\.ssl\.keystore\.location=.* can't be used: .*expected a PEM file"):
        http_tls(path, "", "", required=False)


def test_a_wrong_password_of_the_key_is_not_shown(authority: Authority) -> None:
    path = str(authority.issue("instance", "127.0.0.1").pem(PASSWORD))
    for wrong in ("", "marked-secret-that-is-wrong"):
        with pytest.raises(ConfigError) as caught:
            http_tls(path, "", wrong, required=False)
        assert "marked-secret" not in str(caught.value)


def test_other_machines_may_be_served_to_certificates_without_a_token() -> None:
    stores = {"tidemill.http.ssl.keystore.location": "/own.pem", "tidemill.http.ssl.truststore.location": "/ca.pem"}
    beyond = {**NEEDED, "tidemill.http.listen": "10.0.0.1:80"}
    StreamsConfig.of({**beyond, **stores, "tidemill.http.ssl.client.auth": "required"})
    with pytest.raises(ConfigError, match=r"tidemill\.http\.token too .*client\.auth=required"):
        StreamsConfig.of({**beyond, **stores})
    with pytest.raises(ConfigError, match=r"client\.auth=required needs tidemill\.http\.ssl\.keystore\.location"):
        StreamsConfig.of({**beyond, "tidemill.http.ssl.client.auth": "required"})
    with pytest.raises(ConfigError, match="a server's TLS needs a private key"):
        StreamsConfig.of({**NEEDED, "tidemill.http.ssl.truststore.location": "/ca.pem"})
