"""Why the brokers don't let a client in: login, certificates, host name or protocol, as one sentence with what to check.

Decides by librdkafka's words, since one error code stands for all that TLS can refuse. None of it passes by itself; brokers
that can't be reached at all are another matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from tidemill.errors import ConfigError

_NO_ENTRY = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError._SSL,
    }
)
_MEANINGS = (
    (
        "hostname mismatch|ip address mismatch|host.?name.*(mismatch|does not match)",
        "the brokers' certificate is not for the host of bootstrap.servers",
        "use a name that the certificate has, or set kafka.ssl.endpoint.identification.algorithm to nothing to do without",
    ),
    (
        "certificate verify failed|could not be verified|self.signed|unable to get.*issuer",
        "the brokers' certificate is signed by nobody who is trusted here",
        "name the certificate that signs it in kafka.ssl.truststore.location",
    ),
    (
        "certificate required|bad certificate|handshake failure|unknown ca|certificate unknown",
        "the brokers don't accept this client's certificate",
        "name a key and a certificate that they trust in kafka.ssl.keystore.location",
    ),
    (
        "unsupported.*mechanism|mechanism.*not enabled|not supported by the broker|enabled mechanisms",
        "the brokers don't offer the SASL mechanism",
        "set kafka.sasl.mechanism to one that they have",
    ),
    (
        "authentication fail|invalid credentials|invalid username or password|sasl",
        "the brokers refuse the login",
        "check the user name and the password in kafka.sasl.jaas.config",
    ),
    (
        "wrong version number|plaintext|unknown protocol|packet length",
        "the brokers' port does not speak TLS",
        "check kafka.security.protocol",
    ),
)
_OTHERWISE = ("the brokers don't let this client in", "check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*")


def keeps_out(error: KafkaError) -> bool:
    """Whether this is about who may come in; with TLS 1.3 a broker says only after the handshake that it wants a certificate."""
    return error.code() in _NO_ENTRY or re.search(r"alert (?:\w+ )?(?:certificate|unknown ca)", error.str(), re.I) is not None


def no_entry(servers: str, error: KafkaError, settings: Mapping[str, Any]) -> ConfigError:
    """The error of a client with these settings whose brokers are at ``servers``."""
    said = error.str()
    meanings = ((found, advice) for pattern, found, advice in _MEANINGS if re.search(pattern, said, re.IGNORECASE))
    found, advice = next(meanings, _OTHERWISE)
    user = settings.get("sasl.username")
    who = f" of user {user!r}" if user and found.endswith("login") else ""
    return ConfigError(f"{found}{who} ({servers}): {advice}. The client says: {_first_sentence(said)}")


def _first_sentence(text: str) -> str:
    """librdkafka puts host, advice and timings around what happened."""
    text = re.sub(r"^\S+?://\S+?(?:/\w+)?: ", "", text)
    return re.sub(r"\s*\(after \d+ms in state \w+.*\)\s*$", "", text)
