"""Certificates in every form that Kafka's settings have for them reach both clients; what can't be read is said."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.security.certificates import Authority, Certified
from tidemill.config.slices import ClientsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.kafka.security.clients import group_client_settings
from tidemill.kafka.security.key_stores import data_store_settings, group_store_settings

PASSWORD = "marked-secret-of-the-store"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certified:
    return authority.issue("app")


def _pkcs12(authority: Authority, client: Certified) -> dict[str, str]:
    return {
        "ssl.truststore.location": str(authority.pkcs12(PASSWORD)), "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(client.pkcs12(PASSWORD)), "ssl.keystore.password": PASSWORD,
    }  # fmt: skip


def _inside(authority: Authority, client: Certified) -> dict[str, str]:
    key, _, chain = client.pem().read_text().partition("-----BEGIN CERTIFICATE")
    return {
        "ssl.truststore.certificates": authority.pem.read_text(),
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain,
    }


def _locked(authority: Authority, client: Certified) -> dict[str, str]:
    return {
        "ssl.truststore.certificates": authority.pem.read_text(),
        "ssl.keystore.location": str(client.pem(PASSWORD)), "ssl.key.password": PASSWORD,
    }  # fmt: skip


@pytest.mark.parametrize("stores", [_pkcs12, _inside, _locked])
def test_what_is_no_plain_file_reaches_both_clients(stores, authority: Authority, client: Certified) -> None:
    kafka = stores(authority, client)
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "log_level": 0, **data_store_settings(kafka)})
    context = group_store_settings(kafka, checks_host=True)["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert [found["subject"] for found in context.get_ca_certs()] == [((("commonName", "authority"),),)]
    assert not group_store_settings(kafka, checks_host=False)["ssl_context"].check_hostname


@pytest.mark.parametrize(("algorithm", "is_checked"), [(None, True), ("https", True), ("", False)])
def test_the_groups_client_checks_the_brokers_host_unless_the_setting_is_empty(
    algorithm: str | None, is_checked: bool, authority: Authority
) -> None:
    settings = {"bootstrap.servers": "a:1", "kafka.security.protocol": "SSL"}
    settings["kafka.ssl.truststore.certificates"] = authority.pem.read_text()
    if algorithm is not None:
        settings["kafka.ssl.endpoint.identification.algorithm"] = algorithm
    made = group_client_settings(StreamsConfig.read_slice(ClientsConfig, settings))
    assert made["ssl_context"].check_hostname is is_checked


def test_a_pem_file_is_handed_on_as_its_path(authority: Authority, client: Certified) -> None:
    kafka = {"ssl.truststore.location": str(authority.pem), "ssl.keystore.location": str(client.pem())}
    assert data_store_settings(kafka) == {
        "ssl.ca.location": str(authority.pem),
        "ssl.certificate.location": str(client.pem()),
        "ssl.key.location": str(client.pem()),
    }
    assert group_store_settings(kafka, checks_host=True) == {
        "ssl_cafile": str(authority.pem), "ssl_certfile": str(client.pem()), "ssl_keyfile": str(client.pem()),
    }  # fmt: skip


def test_a_wrong_password_is_one_sentence_without_it(authority: Authority, client: Certified) -> None:
    kafka = {**_pkcs12(authority, client), "ssl.keystore.password": "marked-secret-that-is-wrong"}
    for read in (data_store_settings, lambda kafka: group_store_settings(kafka, checks_host=True)):
        with pytest.raises(ConfigError, match=r"kafka\.ssl\.keystore\.password \(hidden\) is not its password") as caught:
            read(kafka)
        assert "marked-secret" not in str(caught.value)


def test_an_encrypted_key_without_its_password_is_an_error_and_no_question_on_the_terminal(
    authority: Authority, client: Certified
) -> None:
    program = (
        "import sys, tidemill.kafka.security.key_stores as s\n"
        "s.group_store_settings({'ssl.truststore.certificates': open(sys.argv[1]).read(), 'ssl.keystore.location': sys.argv[2]},"
        " checks_host=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(authority.pem), str(client.pem(PASSWORD))],
        capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert "kafka.ssl.key.password if the key is encrypted" in done.stderr
    assert "pass phrase" not in done.stderr


def test_a_truststore_of_keytool_s_kind_may_hold_several_certificates(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    both = tmp_path / "both.pem"
    both.write_bytes(first.pem.read_bytes() + second.pem.read_bytes())
    kafka = {"ssl.truststore.certificates": both.read_text()}
    assert len(group_store_settings(kafka, checks_host=True)["ssl_context"].get_ca_certs()) == 2
