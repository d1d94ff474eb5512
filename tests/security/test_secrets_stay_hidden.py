"""An application with marked secrets in every place that has one: nothing that it says, shows or starts holds any of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.security.certificates import Authority
from tests.security.secured import LINES, PASSWORD, Secured, words_of
from tidemill.config.streams_config import StreamsConfig
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.embedded.broker_plan import free_port
from tidemill.kafka.group.member_config import GroupMemberConfig

MARK = "marked-secret"
TOKEN = "marked-secret-token-of-http"
PROGRAM = '''
from pyspark.sql import functions as F
from tidemill import Serdes, StreamsBuilder

builder = StreamsBuilder()
lines = builder.stream("{source}", key=Serdes.string(), value=Serdes.string())
words = lines.flat_map_values(lambda line: F.split(line, " "))
words.group_by(lambda _, word: word, key=Serdes.string()).count(store="counts").to_stream().to("{sink}")
config = {config!r}
'''
PAGES = (
    "", "stores", "stores/counts", "tasks", "group", "instance", "topology", "decisions", "metrics", "health/live",
    "health/ready",
)  # fmt: skip
SPARK_PAGES = ("environment/", "jobs/", "stages/", "executors/", "SQL/", "storage/", "api/v1/applications")


def test_what_is_printed_of_settings_holds_no_secret() -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="{PASSWORD}";'
    config = StreamsConfig.of(
        {
            "application.id": "app", "bootstrap.servers": "h:1", "kafka.sasl.jaas.config": jaas, "kafka.sasl.mechanism": "PLAIN",
            "kafka.security.protocol": "SASL_SSL", "kafka.ssl.key.password": f"{MARK}-1", "tidemill.http.token": TOKEN,
            "kafka.ssl.keystore.key": f"{MARK}-2", "spark.hadoop.fs.s3a.secret.key": f"{MARK}-3",
            "tidemill.http.ssl.key.password": f"{MARK}-4", "tidemill.http.ssl.keystore.location": "/x.pem",
        }
    )  # fmt: skip
    member = GroupMemberConfig(client_settings={"sasl_plain_password": PASSWORD}, group_id="g", client_id="c")
    for shown in (config, config.kafka, config.spark, member):
        assert MARK not in repr(shown)
        assert MARK not in f"{shown}"


def _program(folder: Path, place: Secured, authority: Authority, http_port: int, spark_port: int) -> Path:
    (folder / "secrets.properties").write_text(f"url=jdbc:h2:{MARK}-of-a-url\n")
    own = authority.issue("hidden").pem(f"{MARK}-of-a-key")
    served = authority.issue("served", "127.0.0.1").pem(f"{MARK}-of-the-http-key")
    config = {
        "application.id": place.name,
        "bootstrap.servers": place.broker.bootstrap_servers,
        "state.dir": str(folder / "state"),
        **{f"kafka.{name}": value for name, value in place.login.items()},
        "kafka.ssl.keystore.location": str(own),
        "kafka.ssl.key.password": f"{MARK}-of-a-key",
        "tidemill.http.listen": f"127.0.0.1:{http_port}",
        "tidemill.http.token": TOKEN,
        "tidemill.http.ssl.keystore.location": str(served),
        "tidemill.http.ssl.key.password": f"{MARK}-of-the-http-key",
        "tidemill.http.ssl.truststore.location": str(authority.pem),
        "spark.ui.enabled": True,
        "spark.ui.port": spark_port,
        "spark.hadoop.fs.s3a.secret.key": f"{MARK}-of-hadoop",
        "spark.example.address": f"http://me:{MARK}-of-an-address@127.0.0.1:1",
        "spark.example.jdbc.url": f"${{file:{folder}/secrets.properties:url}}",
        "spark.hadoop.example.place": f"${{file:{folder}/secrets.properties:url}}",
        "spark.hadoop.fs.azure.account.key.mine": f"{MARK}-of-a-cloud",
        "spark.example.option": f"-Dexample.trustStorePassword={MARK}-of-an-option",
    }
    path = folder / "counted.py"
    path.write_text(PROGRAM.format(source=place.topic("in"), sink=place.topic("out"), config=config))
    return path


def _tidemill(*words: object) -> str:
    command = [str(Path(sys.executable).with_name("tidemill")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


def _page(url: str, context: ssl.SSLContext | None = None, token: str = "") -> str:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
            return str(answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as refused:
        return str(refused.read().decode(errors="replace"))


def _processes(root: int) -> Iterator[tuple[str, str]]:
    """Command line and environment of every process that has come of this one."""
    for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            for kind in ("cmdline", "environ"):
                yield f"/proc/{process.pid}/{kind}", Path(f"/proc/{process.pid}/{kind}").read_text(errors="replace")


def _blocks(root: int, application: str) -> Iterator[tuple[str, str]]:
    """What Spark's ports answer to a stranger who asks for the broadcasts, in which plans travel."""
    for process in psutil.Process(root).children(recursive=True):
        listening = {at.laddr.port for at in process.net_connections("tcp") if at.status == psutil.CONN_LISTEN}
        for port in listening:
            for number in range(8):
                answer = _block(port, application, f"broadcast_{number}_piece0").decode("latin-1")
                if not answer:
                    break  # it speaks another protocol
                yield f"block {number} at port {port}", answer


def _block(port: int, application: str, block: str) -> bytes:
    """By Spark's own protocol: OpenBlocks, then the first chunk of the stream that answers it."""
    names = b"".join(struct.pack(">i", len(text)) + text.encode() for text in (application, "driver"))
    ask = b"\0" + names + struct.pack(">ii", 1, len(block)) + block.encode()
    answers = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as line:
        line.sendall(struct.pack(">qbqi", 8 + 13 + len(ask), 3, 1, len(ask)) + ask)
        while len(answers) < 34 and (part := line.recv(1 << 16)):
            answers += part
        if answers[8:9] == b"\4":  # a stream
            line.sendall(struct.pack(">qbqi", 21, 0, struct.unpack(">q", answers[22:30])[0], 0))
            while part := line.recv(1 << 16):
                answers += part
    return answers


def _files(*folders: Path) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_size < 64 << 20:
                    yield str(path), path.read_bytes().decode("latin-1")


@pytest.mark.security
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_nothing_that_an_application_says_shows_or_starts_holds_a_secret(
    with_logins: EmbeddedBroker, tmp_path: Path, authority: Authority, shown: Callable[[str], None]
) -> None:
    login = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.truststore.location": str(authority.pem),
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="app" password="{PASSWORD}";',
    }  # fmt: skip
    place = Secured(with_logins, None, tmp_path, "hidden", "User:app", login)
    place.create()
    place.grant(place.all_rights())
    place.send()
    http_port = free_port()
    spark_port = free_port(http_port)
    program = _program(tmp_path, place, authority, http_port, spark_port)
    scratch = Path(tempfile.mkdtemp(prefix="hidden-"))  # short, since sockets lie in it
    said: dict[str, str] = {
        "describe --json": _tidemill("describe", program, "--json"),
        "explain-plan": _tidemill("explain-plan", program),
        "an error": _tidemill("run", program, "--set", "kafka.sasl.mechanism=SCRAM-SHA-256", "--log-level", "debug"),
    }
    with (tmp_path / "log").open("w") as log:
        instance = subprocess.Popen(
            [str(Path(sys.executable).with_name("tidemill")), "run", str(program), "--log-level", "debug"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(scratch)},
        )  # fmt: skip
    try:
        assert place.counts(words_of(LINES)) == dict(words_of(LINES)), (tmp_path / "log").read_text()[-3000:]
        context = ssl.create_default_context(cafile=str(authority.pem))
        for page in PAGES:
            said[f"https {page}"] = _page(f"https://127.0.0.1:{http_port}/{page}", context, TOKEN)
            said[f"https {page} without token"] = _page(f"https://127.0.0.1:{http_port}/{page}", context)
        said |= {f"Spark's page {page}": _page(f"http://127.0.0.1:{spark_port}/{page}") for page in SPARK_PAGES}
        identity = said["Spark's page api/v1/applications"].partition('"id" : "')[2].partition('"')[0]
        for end in ("environment", "jobs", "stages", "sql?details=true&planDescription=true", "allexecutors"):
            said[f"Spark's {end}"] = _page(f"http://127.0.0.1:{spark_port}/api/v1/applications/{identity}/{end}")
        said |= dict(_processes(instance.pid))
        said |= dict(_blocks(instance.pid, identity))
        said |= dict(_files(scratch, tmp_path / "state"))
    finally:
        instance.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            instance.wait(90)
        instance.kill()
        shutil.rmtree(scratch, ignore_errors=True)
    said["its log"] = (tmp_path / "log").read_text()
    said["the broker's log"] = with_logins.log_file.read_text(errors="replace")
    assert "spark.example.jdbc.url" in said["Spark's environment"]  # it was shown, and its value hidden
    assert any("SaslMessage" in text for text in said.values())  # a stranger got as far as the ports
    assert "counts" in said["https stores"]
    assert "hidden" in said["describe --json"] or "counts" in said["describe --json"]
    assert len([name for name in said if name.endswith("/cmdline")]) >= 3  # the instance, its JVM, workers
    found = {name: text[max(0, text.index(MARK) - 80) : text.index(MARK) + 60] for name, text in said.items() if MARK in text}
    assert not found
    shown(f"no secret in {len(said)} texts: log at debug, describe, explain-plan, an error, HTTP, Spark's pages, /proc, files")
