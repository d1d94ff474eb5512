"""The users of an embedded broker that its settings can't hold: SCRAM passwords are kept by the cluster itself.

Set over the internal listener after each start, so that no password is ever on a command line.
"""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tidemill.embedded.broker_security import BrokerSecurity
from tidemill.errors import EnvironmentProblem

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
