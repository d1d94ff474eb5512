"""Why the brokers don't let a client in: login, certificates, host name or protocol, as one sentence with what to check.

Decides by librdkafka's words, since one error code covers all that TLS can refuse, and by one look at a certificate.
None of these errors passes by itself. Brokers that can't be reached are handled elsewhere.
"""

from __future__ import annotations

import re
import socket
import ssl

from confluent_kafka import KafkaError

from tidemill.config.values import DataClientSettings
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
_UNVERIFIED = "certificate verify failed|could not be verified|self.signed|unable to get.*issuer"
_OTHER_HOST = (
    "the brokers' certificate is not for the host under which they were reached",
    "say a name that it has in bootstrap.servers (the brokers: in advertised.listeners), or set "
    "kafka.ssl.endpoint.identification.algorithm to nothing to do without",
)
_UNTIMELY = {
    9: ("the brokers' certificate is not valid yet", "compare the clocks of this machine and theirs, or renew the certificate"),
    10: ("the brokers' certificate has expired", "renew it, or the one that signs it, or correct this machine's clock"),
}
"""By OpenSSL's numbers."""
_LOOK_LIMIT_S = 3.0
_MEANINGS = (
    (
        _UNVERIFIED,
        "the brokers' certificate is signed by no one who is trusted here",
        "name the certificate that signs it in kafka.ssl.truststore.location",
    ),
    (
        "certificate (?:required|unknown|expired|revoked)|bad certificate|handshake failure|unknown ca",
        "the brokers don't accept this client's certificate",
        "name a key and a certificate that they trust in kafka.ssl.keystore.location",
    ),
    (
        "not valid in current sasl state",
        "the brokers' port takes no SASL login",
        "set kafka.security.protocol to PLAINTEXT or SSL, or name a port that takes logins in bootstrap.servers",
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
    """True for a refused login or certificate. With TLS 1.3 a broker asks for a certificate only after the handshake."""
    return error.code() in _NO_ENTRY or re.search(r"alert (?:\w+ )?(?:certificate|unknown ca)", error.str(), re.I) is not None


def no_entry(servers: str, error: KafkaError, settings: DataClientSettings) -> ConfigError:
    """The error of a client with these settings whose brokers are at ``servers``."""
    said = error.str()
    meanings = ((found, advice) for pattern, found, advice in _MEANINGS if re.search(pattern, said, re.IGNORECASE))
    found, advice = next(meanings, _OTHERWISE)
    if re.search(_UNVERIFIED, said, re.IGNORECASE):
        found, advice = _looked_at(servers, settings) or (found, advice)
    user = settings.get("sasl.username")
    who = f" of user {user!r}" if user and found.endswith("refuse the login") else ""
    return ConfigError(f"{found}{who} ({servers}): {advice}. The client says: {_first_sentence(said)}")


def _looked_at(servers: str, settings: DataClientSettings) -> tuple[str, str] | None:
    """What is wrong with the first server's certificate, which someone trusted has signed: librdkafka has one error for all."""
    host, _, port = servers.partition(",")[0].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        location, pem = (str(settings.get(name) or "") or None for name in ("ssl.ca.location", "ssl.ca.pem"))
        if location or pem:
            context.load_verify_locations(location, cadata=pem)
        else:
            context.load_default_certs()
        with socket.create_connection((host.strip("[]"), int(port)), _LOOK_LIMIT_S) as plain, context.wrap_socket(plain):
            return _OTHER_HOST
    except ssl.SSLCertVerificationError as refused:
        return _UNTIMELY.get(refused.verify_code)
    except (OSError, ValueError):
        return None


def _first_sentence(text: str) -> str:
    """librdkafka puts host, advice and timings around what happened."""
    text = re.sub(r"^\S+?://\S+?(?:/\w+)?: ", "", text)
    return re.sub(r"\s*\(after \d+ms in state \w+.*\)\s*$", "", text)
