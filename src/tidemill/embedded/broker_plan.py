"""Plan of one single-node Kafka broker on this machine: its folder, settings, command, and when it is ready.

Decides the settings (one KRaft node, loopback only, internal topics with one replica and one partition) and how a broker that
can't start is explained. Users whose passwords (SCRAM) the cluster itself keeps are set over the internal listener after each
start, so that no password is ever on a command line. How long a broker lives is decided in `tidemill.embedded.broker` (as long
as its owner) and `tidemill.embedded.daemon` (until it is stopped by command).
"""

from __future__ import annotations

import base64
import fcntl
import os
import random
import re
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tidemill.deadline import Deadline
from tidemill.embedded.broker_security import BrokerSecurity, listener_settings
from tidemill.embedded.jars import Bundle
from tidemill.embedded.java import Java
from tidemill.errors import EnvironmentProblem

HOST = "127.0.0.1"
JVM_FLAGS = ("-Xms128m", "-XX:+UseSerialGC")
"""Options of every broker's JVM, its largest heap apart; a cache fits these only (``jvm_cache``)."""
READY = "Kafka Server started"
_LAUNCHER_SAYS = re.compile("(NOTE: )?Picked up [A-Z_]+: ")
"""Lines that the JVM prints about options in the environment, before all others."""
# Below the ports that Linux and macOS give to outgoing connections: a client that calls a stopped broker's port again
# and again could otherwise get that very port for its own end, connect to itself and keep the broker from coming back.
_FREE_PORTS = range(15_000, 32_000)


class PortTakenError(EnvironmentProblem):
    """Another process listens on the broker's port."""


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """A broker that could run: with what, where, on which ports. ``security`` None: everyone on this machine may do all."""

    java: Java
    bundle: Bundle
    data: Path
    port: int
    controller_port: int
    heap_mb: int = 384
    settings: Mapping[str, str] = field(default_factory=dict)
    security: BrokerSecurity | None = None
    internal_port: int = 0
    jvm_options: Sequence[str] = ()
    """Next to those of every broker."""
    cluster_id: str = field(default_factory=_new_cluster_id)
    """The id with which its storage is formatted; the brokers of one cluster have the same."""

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def internal_servers(self) -> str:
        """Address at which a client is a super user without a login; that of all others where there is no security."""
        return self.bootstrap_servers if self.security is None else f"{HOST}:{self.internal_port}"

    @property
    def log_file(self) -> Path:
        return self.data / "broker.log"

    @property
    def console_file(self) -> Path:
        """Output of the JVM itself: nothing, unless it dies."""
        return self.data / "console.log"

    def command(self, main_class: str, *arguments: str) -> list[str]:
        options = [f"-Xmx{self.heap_mb}m", *JVM_FLAGS, *self.jvm_options]
        logging = [f"-Dlog4j2.configurationFile=file:{self.data / 'log4j2.yaml'}", f"-Dkafka.logs.dir={self.data}"]
        return [str(self.java.path), *options, *logging, "-cp", self.bundle.classpath, main_class, *arguments]

    def run_command(self, *more_options: str) -> list[str]:
        java, *rest = self.command("kafka.Kafka", str(self.data / "server.properties"))
        return [java, *more_options, *rest]


def server_properties(plan: BrokerPlan) -> str:
    """The broker's settings; those of the plan win."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{plan.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{plan.port},CONTROLLER://{HOST}:{plan.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plan.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(plan.data / "data"),
        "num.partitions": "1",
        "auto.create.topics.enable": "false",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "log.cleaner.threads": "1",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.coordinator.threads": "1",
        "transaction.max.timeout.ms": "900000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "log.retention.hours": "-1",
        # Changelogs of windows have a retention of their own. Programs are tried out with event times of long ago, whose
        # records a broker deletes when it first looks at a topic (the cleaner, where it is compacted too): not before the
        # program has been tried.
        "log.initial.task.delay.ms": "300000",
        "log.cleaner.backoff.ms": "300000",
        "log.segment.delete.delay.ms": "1000",
    }
    if plan.security is not None:
        ports = {"port": plan.port, "internal_port": plan.internal_port, "controller_port": plan.controller_port}
        settings |= listener_settings(plan.security, host=HOST, **ports)
    settings |= plan.settings
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def log4j_configuration(plan: BrokerPlan) -> str:
    """The broker's log: at most three files of 10 MB, so that an everyday broker never fills the disk."""
    return f"""\
Configuration:
  Appenders:
    RollingFile:
      name: FILE
      fileName: {plan.log_file}
      filePattern: {plan.log_file}.%i
      PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}
      Policies: {{SizeBasedTriggeringPolicy: {{size: 10 MB}}}}
      DefaultRolloverStrategy: {{max: 2}}
  Loggers:
    Root: {{level: INFO, AppenderRef: [{{ref: FILE}}]}}
"""


def free_port(*but: int) -> int:
    """A port of the loopback interface that nothing listens on now, other than these."""
    for port in random.sample(_FREE_PORTS, k=200):
        if port not in but and not port_is_taken(port):
            return port
    raise EnvironmentProblem(f"no free port among {_FREE_PORTS.start}..{_FREE_PORTS.stop - 1} on {HOST}; name one")


def port_is_taken(port: int) -> bool:
    with socket.socket() as caller:
        caller.settimeout(0.5)
        if caller.connect_ex((HOST, port)) == 0:
            return True
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return True
    return False


def prepare(plan: BrokerPlan, *, limit_s: float) -> None:
    """Makes the folder, writes the settings and formats the storage if that was never done, which may take ``limit_s``."""
    if port_is_taken(plan.port):
        raise PortTakenError(
            f"port {plan.port} on {HOST} is in use: stop what listens there (tidemill broker status shows our brokers) "
            "or choose another port"
        )
    if _is_in_use(plan.data / "data" / ".lock"):
        raise _folder_in_use(plan)
    try:
        plan.data.mkdir(parents=True, exist_ok=True)
        if not os.access(plan.data, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
        _write_for_owner(plan.data / "server.properties", server_properties(plan))
        (plan.data / "log4j2.yaml").write_text(log4j_configuration(plan))
    except OSError as error:
        raise EnvironmentProblem(
            f"can't keep the broker's data in {plan.data}: {error.strerror or error}; "
            "choose a folder that you may write"
        ) from error
    if not (plan.data / "data" / "meta.properties").exists():
        _format(plan, limit_s)


def _write_for_owner(path: Path, text: str) -> None:
    """Users' passwords may be in it."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


def _is_in_use(lock: Path) -> bool:
    """True if a running broker holds the lock that Kafka keeps in its data folder."""
    try:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False  # not ours to write: `prepare` says so
    return False


def _folder_in_use(plan: BrokerPlan) -> EnvironmentProblem:
    return EnvironmentProblem(f"another broker uses the folder {plan.data}; stop it or choose another folder")


def _format(plan: BrokerPlan, limit_s: float) -> None:
    properties = str(plan.data / "server.properties")
    command = plan.command("kafka.tools.StorageTool", "format", "--cluster-id", plan.cluster_id, "-c", properties)
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"formatting the broker's storage in {plan.data} was not done after {limit_s:g} s"
        ) from error
    if done.returncode != 0:
        said = (done.stderr + done.stdout).splitlines()
        errors = [line for line in said if line.strip() and line[0] != "\t" and not _LAUNCHER_SAYS.match(line)]
        raise EnvironmentProblem(
            f"can't format the broker's storage in {plan.data}: {errors[0] if errors else 'Kafka said nothing'}"
        )


def log_size(plan: BrokerPlan) -> int:
    """Size of the log before a start: `wait_until_ready` looks at what comes after."""
    try:
        return plan.log_file.stat().st_size
    except OSError:
        return 0


def wait_until_ready(plan: BrokerPlan, *, log_offset: int, is_alive: Callable[[], bool], limit_s: float) -> None:
    """Returns when the broker takes clients; EnvironmentProblem if it ends before or the limit passes."""
    deadline = Deadline.after(limit_s)
    while True:
        alive = is_alive()
        if READY in log_since(plan, log_offset) and port_is_taken(plan.port):
            return
        if not alive:
            raise failed_start(plan, log_offset)
        if deadline.is_over:
            raise EnvironmentProblem(
                f"the broker was not ready after {limit_s:g} s: {_last_word(plan, log_offset)}; "
                f"the log: {plan.log_file}"
            )
        time.sleep(0.05)


def set_users(plan: BrokerPlan) -> None:
    """Creates the users of a broker once it is ready."""
    if plan.security is not None and plan.security.scram_mechanisms:
        set_scram_passwords(plan.internal_servers, plan.security)


def log_since(plan: BrokerPlan, offset: int) -> str:
    """Log of the broker from this size on."""
    try:
        with plan.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(offset if offset <= size else 0)  # shorter than before: it was rolled over meanwhile
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def failed_start(plan: BrokerPlan, offset: int) -> EnvironmentProblem:
    """Why it ended, by its log."""
    log = log_since(plan, offset)
    if "Failed to acquire lock on file" in log:
        return _folder_in_use(plan)
    if "Address already in use" in log:
        return PortTakenError(f"port {plan.port} or {plan.controller_port} on {HOST} was taken meanwhile; try again")
    if "UnsupportedVersionException: Can't read version" in log:
        return EnvironmentProblem(
            f"{plan.data} was written by a newer Kafka than the one that jars.lock names ({_last_word(plan, offset)}): "
            f"name another folder, or remove this one if its records are not needed"
        )
    return EnvironmentProblem(
        f"the broker ended while it started: {_last_word(plan, offset)}; the log: {plan.log_file}"
    )


def _last_word(plan: BrokerPlan, offset: int) -> str:
    """The line that most likely explains why a broker doesn't start: its last error, or what the JVM said."""
    log = log_since(plan, offset).splitlines()
    errors = [line for line in log if "] FATAL" in line or "] ERROR" in line or line.startswith("Caused by")]
    try:
        console = plan.console_file.read_text(errors="replace").strip().splitlines()
    except OSError:
        console = []
    return (errors[-1:] or console[:1] or log[-1:] or ["it said nothing"])[0]


_ITERATIONS = 4096
_LIMIT_S = 20.0


def set_scram_passwords(servers: str, security: BrokerSecurity) -> None:
    """Gives every user its password for every SCRAM mechanism. EnvironmentProblem if the broker doesn't take them."""
    changes = [
        UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], _ITERATIONS), password.encode()
        )
        for mechanism in security.scram_mechanisms
        for name, password in security.users.items()
    ]
    if not changes:
        return
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        # One change at a time: a request may name a user once only.
        for change in changes:
            for done in client.alter_user_scram_credentials([change], request_timeout=_LIMIT_S).values():
                done.result(_LIMIT_S)
    except (KafkaException, TimeoutError) as problem:
        raise EnvironmentProblem(f"the broker does not take the users' passwords: {problem}") from None
