"""A setting may say where its value is, in the way of Kafka's ConfigProviders; what is found there is never told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemill.config.slices import ClientsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings
from tidemill.kafka.security.config_providers import read_properties, references, references_shown, resolved, resolved_spark

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{}";'
SECRET = "marked-secret-value"


def _config(**settings: object) -> StreamsConfig:
    needed = {"application.id": "app", "bootstrap.servers": "a:1", "kafka.security.protocol": "SASL_PLAINTEXT"}
    return StreamsConfig.of({**needed, "kafka.sasl.mechanism": "SCRAM-SHA-256", **settings})


def test_a_secret_comes_from_a_file_a_folder_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "login.properties").write_text(f"# of alice\nother=1\npassword = {SECRET}\n")
    (tmp_path / "password").write_text(SECRET + "\n")
    monkeypatch.setenv("ALICES_PASSWORD", SECRET)
    for reference in (
        f"${{file:{tmp_path}/login.properties:password}}", f"${{directory:{tmp_path}:password}}", "${env:ALICES_PASSWORD}",
    ):  # fmt: skip
        config = _config(**{"kafka.sasl.jaas.config": JAAS.format(reference)})
        assert data_client_settings(config.slice(ClientsConfig), ClientRole.CONSUMER)["sasl.password"] == SECRET
        assert group_client_settings(config.slice(ClientsConfig))["sasl_plain_password"] == SECRET
        assert SECRET not in repr(config)


def test_only_a_whole_reference_is_shown() -> None:
    assert "'sasl.jaas.config': '${env:JAAS}'" in repr(_config(**{"kafka.sasl.jaas.config": "${env:JAAS}"}))
    assert "hush" not in repr(_config(**{"kafka.sasl.jaas.config": JAAS.format("hush${env:REST}")}))


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${env:TIDEMILL_NO_SUCH}", "the environment of this process has no variable TIDEMILL_NO_SUCH"),
        ("${file:/no/such/file:key}", "No such file"),
        ("${file:FOLDER/login.properties:nothing}", "the file has no line nothing=..."),
        ("${file:FOLDER/login.properties}", "No such file"),  # read as Kafka does: a path and a key
        ("${file:only}", "expected ${file:PATH:KEY}"),
        ("${directory:FOLDER:../escape}", "that of a file in the folder"),
        ("${directory:FOLDER:binary}", "it is not text in UTF-8"),
        ("${vault:a:b}", "expected ${file:PATH:KEY}, ${directory:PATH:NAME} or ${env:NAME}"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error_that_shows_the_reference_only(
    reference: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "login.properties").write_text(f"password={SECRET}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    reference = reference.replace("FOLDER", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        resolved("kafka.sasl.jaas.config", f'password="{SECRET}{reference}"')
    assert said in str(caught.value) or "expected ${file:PATH:KEY}" in str(caught.value)
    assert reference in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_value_that_was_looked_up_is_not_shown_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMEOUT", SECRET)
    with pytest.raises(ConfigError) as caught:
        data_client_settings(_config(**{"producer.batch.size": "${env:TIMEOUT}", "kafka.sasl.jaas.config": JAAS.format("x")}),
                             ClientRole.PRODUCER)  # fmt: skip
    assert "producer.batch.size is '${env:TIMEOUT}', expected a whole number" in str(caught.value)


def test_spark_hides_what_was_referred_to_whatever_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", SECRET)
    found = resolved_spark({"jdbc.url": "${env:URL}", "app.color": "blue"})
    assert found["spark.jdbc.url"] == SECRET
    hidden = re.compile(found["spark.redaction.regex"]).search
    assert hidden("spark.jdbc.url")
    assert hidden("spark.hadoop.fs.s3a.secret.key")
    assert not hidden("spark.app.color")
    assert resolved_spark({"app.color": "blue"}) == {"spark.app.color": "blue"}


@pytest.mark.parametrize("kind", [ConfigError, EnvironmentProblem])
def test_an_error_in_others_words_shows_the_reference_too(kind: type[Exception]) -> None:
    written = references("spark.", {"master": "${env:MASTER}", "app.color": "blue", "ui.port": "${env:PORT}"})
    found = {"spark.master": f"spark://{SECRET}", "spark.app.color": "blue", "spark.ui.port": "40"}
    assert written.keys() == {"spark.master", "spark.ui.port"}
    with pytest.raises(kind) as caught, references_shown(found, written):
        raise kind(f"could not parse spark://{SECRET}: the port is '40', expected 4040 or above")
    assert str(caught.value) == "could not parse ${env:MASTER}: the port is '${env:PORT}', expected 4040 or above"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("prefix", ["hadoop.", "metrics.conf.", "executorEnv.", ""])
def test_spark_hides_it_on_the_pages_that_show_it_without_its_prefix_too(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", SECRET)
    hidden = re.compile(resolved_spark({f"{prefix}plain.thing": "${env:URL}"})["spark.redaction.regex"]).search
    assert hidden(f"spark.{prefix}plain.thing")
    assert hidden("plain.thing")
    assert not hidden("another.plain.thing")
    assert not hidden("plain.thing.else")


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb : 2\n c 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("! no\n#no\n\n=x\na=", {"a": ""}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a=\\u0041\\t\\\\", {"a": "A\t\\"}),
        ("a=1\x0b2\x1c3\x854\u20285\r\nb=6\rc=7", {"a": "1\x0b2\x1c3\x854\u20285", "b": "6", "c": "7"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert read_properties(text) == properties
