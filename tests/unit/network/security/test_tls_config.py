"""The keys of TLS: names of three clients, rules across keys, secrets."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.network.security.tls_config import SecurityConfig
from headrace.producer.config import ProducerConfig

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n"


def resolve(**keys: Any) -> SecurityConfig:
    return SecurityConfig.resolve_from(keys, {}, {})


def refusal(**keys: Any) -> str:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve(**keys)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "attribute"),
    [
        ("ssl_cafile", "ssl_truststore_location"),
        ("ssl.ca.location", "ssl_truststore_location"),
        ("ssl.ca.pem", "ssl_truststore_certificates"),
        ("ssl_certfile", "ssl_certificate_location"),
        ("ssl.certificate.location", "ssl_certificate_location"),
        ("ssl.certificate.pem", "ssl_keystore_certificate_chain"),
        ("ssl_keyfile", "ssl_key_location"),
        ("ssl.key.location", "ssl_key_location"),
        ("ssl.key.pem", "ssl_keystore_key"),
        ("ssl_password", "ssl_key_password"),
        ("ssl_crlfile", "ssl_crlfile"),
        ("ssl.crl.location", "ssl_crlfile"),
    ],
)
def test_names_of_other_clients_are_the_same_keys(given: str, attribute: str) -> None:
    needed = {
        "ssl_keystore_certificate_chain": {"ssl.keystore.key": KEY},
        "ssl_keystore_key": {"ssl.certificate.location": "cert.pem"},
        "ssl_key_location": {"ssl.certificate.location": "cert.pem"},
    }.get(attribute, {})
    value = KEY if attribute == "ssl_keystore_key" else PEM if given.endswith("pem") else "value"
    config = resolve(**{"security.protocol": "SSL", given: value, **needed})
    assert getattr(config, attribute) == value


@pytest.mark.parametrize(
    ("given", "algorithm"), [(True, "https"), ("true", "https"), (False, ""), ("", ""), ("HTTPS", "https"), (None, "")]
)
def test_host_names_are_checked_unless_that_is_switched_off(given: Any, algorithm: str) -> None:
    assert resolve(security_protocol="SSL").ssl_endpoint_identification_algorithm == "https"
    config = resolve(**{"security.protocol": "SSL", "ssl_check_hostname": given})
    assert config.ssl_endpoint_identification_algorithm == algorithm


def test_ciphers_are_separated_by_commas_or_colons() -> None:
    assert resolve(security_protocol="SSL", ssl_ciphers="A:B, C").ssl_cipher_suites == ("A", "B", "C")


def test_the_highest_version_bounds_the_enabled_ones() -> None:
    assert resolve(security_protocol="SSL", ssl_protocol="TLSv1.2").ssl_enabled_protocols == ("TLSv1.2",)
    assert "above ssl.protocol" in refusal(
        security_protocol="SSL", ssl_protocol="TLSv1.2", ssl_enabled_protocols="TLSv1.3"
    )


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"ssl_enabled_protocols": "TLSv1.1"}, "'TLSv1.1', which is not supported: older versions"),
        ({"ssl_enabled_protocols": ""}, "has no TLS version"),
        ({"ssl_endpoint_identification_algorithm": "ldaps"}, "neither https nor empty"),
        ({"ssl_truststore_certificates": "/etc/ca.pem"}, "is not PEM text"),
        ({"ssl_truststore_type": "JKS", "ssl_truststore_location": "a.jks"}, "-srckeystore a.jks -destkeystore a.p12"),
        ({"ssl_cafile": "a", "ssl.ca.pem": PEM}, "ssl.truststore.location and ssl.truststore.certificates exclude"),
        ({"ssl_cafile": "a", "ssl.ca.location": "b"}, "given twice, as ssl_cafile and ssl.ca.location"),
        ({"ssl.key.pem": KEY}, "without its certificate"),
        ({"ssl.certificate.pem": PEM}, "needs its private key"),
        ({"ssl.keystore.location": "a", "ssl_certfile": "b"}, "exclude each other"),
        ({"ssl.engine.factory.class": "x"}, "needs the JVM"),
        ({"ssl.curves.list": "x"}, "ssl.context of your own"),
        ({"ssl_context": object()}, "has no wrap_bio"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], text: str) -> None:
    assert text in refusal(**{"security.protocol": "SSL", **keys})


def test_a_truststore_without_the_protocol_is_refused() -> None:
    """Otherwise everything would be sent in plaintext."""
    assert "so nothing would be encrypted" in refusal(ssl_cafile="ca.pem")
    assert not resolve(security_protocol="PLAINTEXT", ssl_cafile="ca.pem").uses_tls


def test_a_context_replaces_all_other_keys() -> None:
    class Context:
        def wrap_bio(self) -> None: ...

    context = Context()
    assert resolve(security_protocol="SSL", ssl_context=context, ssl_cafile=None).ssl_context is context
    assert "ssl.context and ssl.truststore.location" in refusal(
        security_protocol="SSL", ssl_context=context, ssl_cafile="ca.pem"
    )


SECRETS = {
    "ssl.key.password": "hush",
    "ssl.keystore.password": "hush",
    "ssl.truststore.password": "hush",
    "ssl.keystore.key": KEY,
    "ssl.certificate.pem": PEM.replace("MIIB", "hush"),
    "ssl.ca.pem": PEM.replace("MIIB", "hush"),
}


def test_secrets_are_masked() -> None:
    config = ProducerConfig.resolve_from({"security.protocol": "SSL", "bootstrap.servers": "a", **SECRETS}, {}, {})
    assert "hush" not in repr(config) + config.describe()
    for name in SECRETS:
        assert "hush" not in refusal(**{"security.protocol": "SSL", name: ["hush"]})
        assert "hush" not in refusal(**{"security.protocol": "SSL", name: 5, "linger": "hush"[:0]})


def test_inline_keys_pickle() -> None:
    """Spark sends the configuration to its executors, which build contexts of their own."""
    config = ProducerConfig.resolve_from({"security.protocol": "SSL", "bootstrap.servers": "a", **SECRETS}, {}, {})
    assert pickle.loads(pickle.dumps(config)) == config


def test_copied_defaults_of_kafka_python_change_nothing() -> None:
    config = ProducerConfig.resolve_from(
        {
            "bootstrap_servers": "a",
            "ssl_context": None,
            "ssl_check_hostname": True,
            "ssl_cafile": None,
            "ssl_certfile": None,
            "ssl_keyfile": None,
            "ssl_crlfile": None,
            "ssl_password": None,
            "ssl_ciphers": None,
        },
        {},
        {},
    )
    assert not config.uses_tls
