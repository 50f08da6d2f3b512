"""The keys of TLS, with the names of Java, librdkafka and kafka-python, in one table.

`TlsConfig` has the keys that both ends share, and `SecurityConfig` adds those of a client. No key reads a file: the
context is built by `tls`, which this module does not import, so that a plaintext client never imports `ssl`.
"""

from __future__ import annotations

import os
from typing import Any

from ..config import Config, Draft, Rule, key
from ..config_values import parse_path, parse_str

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
SECURITY_PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
TLS_PROTOCOLS = (SSL, SASL_SSL)

VERSIONS = ("TLSv1.2", "TLSv1.3")
_STORE_TYPES = ("PEM", "PKCS12", "JKS")
_JVM = "it names a class or provider of Java's, which needs the JVM"
_ENGINE = "OpenSSL engines are not supported; give the key as PEM or PKCS12, or build an ssl.context"

LEFT_OUT = {
    "ssl.provider": _JVM,
    "ssl.keymanager.algorithm": _JVM,
    "ssl.trustmanager.algorithm": _JVM,
    "ssl.secure.random.implementation": _JVM,
    "ssl.engine.factory.class": f"{_JVM}; give a Python context as ssl.context",
    "ssl.providers": _ENGINE,
    "ssl.engine.*": _ENGINE,
    "ssl.curves.list": "the curves are OpenSSL's defaults; set others in an ssl.context of your own",
    "ssl.sigalgs.list": "the signature algorithms are OpenSSL's defaults; set others in an ssl.context of your own",
    "ssl.ca.certificate.stores": "the system's store is used as a whole if ssl.truststore.location is not set",
    "ssl.certificate.verify_cb": "certificates are verified by OpenSSL; use an ssl.context of your own",
}


def _parse_versions(value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise ValueError("is not a list of TLS versions")
    names = [each.strip() for each in given if each.strip()]
    known = {each.lower(): each for each in VERSIONS}
    for name in names:
        if name.lower() not in known:
            raise ValueError(f"has {name!r}, which is not supported: older versions than TLS 1.2 are not secure")
    if not names:
        raise ValueError("has no TLS version")
    return tuple(each for each in VERSIONS if each.lower() in {name.lower() for name in names})


def _parse_ciphers(value: Any) -> tuple[str, ...]:
    given = value.replace(":", ",").split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise ValueError("is not a list of cipher suites")
    return tuple(each.strip() for each in given if each.strip())


def _parse_algorithm(value: Any) -> str:
    # kafka-python's ssl_check_hostname is a bool
    if value is False or (isinstance(value, str) and value.strip().lower() in ("", "none", "false")):
        return ""
    if value is True or (isinstance(value, str) and value.strip().lower() in ("https", "true")):
        return "https"
    raise ValueError("is neither https nor empty")


def _parse_pem(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    text = parse_str(value)
    if "-----BEGIN " not in text:
        hint = "; a path goes into the key that ends in .location" if os.path.sep in text[:200] else ""
        raise ValueError(f"is not PEM text (-----BEGIN ...){hint}")
    return text


def _parse_context(value: Any) -> Any:
    if not callable(getattr(value, "wrap_bio", None)):
        raise ValueError("is not an ssl.SSLContext: it has no wrap_bio")
    return value


def _pem_key(doc: str, *aliases: str) -> Any:
    return key(
        default=None,
        parse=_parse_pem,
        accepts="str | bytes",
        allowed="text in PEM format",
        secret=True,
        aliases=aliases,
        doc=doc,
    )


def _file_key(doc: str, *aliases: str, allowed: str = "the path of a file") -> Any:
    return key(default=None, importance="high", parse=parse_path, allowed=allowed, aliases=aliases, show=str, doc=doc)


def _type_key(doc: str) -> Any:
    return key(default=None, choices=_STORE_TYPES, default_text="recognized by the file's content", doc=doc)


_EXCLUSIVE = (
    ("ssl.truststore.location", "ssl.truststore.certificates"),
    ("ssl.keystore.location", "ssl.certificate.location"),
    ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
    ("ssl.certificate.location", "ssl.keystore.certificate.chain"),
    ("ssl.key.location", "ssl.keystore.key"),
    ("ssl.keystore.location", "ssl.key.location"),
    ("ssl.keystore.location", "ssl.keystore.key"),
)


def _check_stores(draft: Draft) -> None:
    """A certificate comes from one place, and so do its key and the trusted certificates. A certificate needs a key,
    and a key a certificate."""
    given = {name: draft[name.replace(".", "_")] is not None for pair in _EXCLUSIVE for name in pair}
    for one, other in _EXCLUSIVE:
        if given[one] and given[other]:
            draft.problem(f"{one} and {other} exclude each other; give one of them")
    has_chain = given["ssl.certificate.location"] or given["ssl.keystore.certificate.chain"]
    has_key = given["ssl.key.location"] or given["ssl.keystore.key"]
    if given["ssl.keystore.certificate.chain"] and not has_key:
        draft.problem("ssl.keystore.certificate.chain needs its private key: give ssl.keystore.key or ssl.key.location")
    if has_key and not has_chain and not given["ssl.keystore.location"]:
        draft.problem(
            "a private key is given without its certificate: give ssl.keystore.certificate.chain or "
            "ssl.certificate.location"
        )


def _check_types(draft: Draft) -> None:
    """`JKS` is rejected: Python cannot read Java's format. Inline certificates and keys are `PEM`."""
    for store, inline in (("keystore", "certificate_chain"), ("truststore", "certificates")):
        store_type = draft[f"ssl_{store}_type"]
        location = draft[f"ssl_{store}_location"]
        if store_type == "JKS":
            draft.problem(f"ssl.{store}.type=JKS is not supported: {how_to_convert(location)}")
        elif store_type == "PKCS12" and draft[f"ssl_{store}_{inline}"] is not None:
            draft.problem(f"ssl.{store}.type is PKCS12, but ssl.{store}.{inline.replace('_', '.')} is always PEM")


def _check_versions(draft: Draft) -> None:
    """`ssl.protocol` is the highest version. Versions above it are not used, whatever `ssl.enabled.protocols` says."""
    if draft["ssl_protocol"] == "TLSv1.2" and "TLSv1.3" in draft["ssl_enabled_protocols"]:
        if draft["ssl_enabled_protocols"] == ("TLSv1.3",):
            draft.problem("ssl.enabled.protocols has only TLSv1.3, which is above ssl.protocol=TLSv1.2")
        else:
            draft.adjust("ssl_enabled_protocols", ("TLSv1.2",), "up to ssl.protocol")


def how_to_convert(path: str | None) -> str:
    """The command that turns a Java keystore into one that can be read here."""
    source = path or "STORE.jks"
    return (
        "Java's own keystore format can be read only by Java; convert the store with `keytool -importkeystore "
        f"-srckeystore {source} -destkeystore {source.removesuffix('.jks')}.p12 -deststoretype PKCS12`"
    )


class TlsConfig(
    Config,
    left_out=LEFT_OUT,
    rules=(
        Rule(
            tuple(sorted({name.replace(".", "_") for pair in _EXCLUSIVE for name in pair})),
            _check_stores,
        ),
        Rule(
            (
                *("ssl_keystore_type", "ssl_keystore_location", "ssl_keystore_certificate_chain"),
                *("ssl_truststore_type", "ssl_truststore_location", "ssl_truststore_certificates"),
            ),
            _check_types,
        ),
        Rule(("ssl_protocol", "ssl_enabled_protocols"), _check_versions),
    ),
):
    """The keys of TLS on either end of a connection."""

    ssl_truststore_location: str | None = _file_key(
        "The certificate authorities that the peer's certificate is verified with: a file in PEM or PKCS12 format, or "
        "a directory prepared by `openssl rehash`. A PKCS12 file needs the `cryptography` package "
        "(`pip install 'headrace[pkcs12]'`).",
        *("ssl.cafile", "ssl.ca.location"),
        allowed="the path of a file or directory",
    )
    ssl_truststore_certificates: str | None = _pem_key(
        "The certificate authorities themselves, in PEM format, instead of a file.", "ssl.ca.pem"
    )
    ssl_truststore_password: str | None = key(
        default=None, secret=True, importance="high", doc="The password of a PKCS12 file in `ssl.truststore.location`."
    )
    ssl_truststore_type: str | None = _type_key("The format of the truststore.")
    ssl_keystore_location: str | None = _file_key(
        "This end's certificate chain and private key, both in one PEM or PKCS12 file. A PKCS12 file needs the "
        "`cryptography` package (`pip install 'headrace[pkcs12]'`)."
    )
    ssl_keystore_certificate_chain: str | None = _pem_key(
        "This end's certificate chain, its own certificate first, in PEM format, instead of a file.",
        "ssl.certificate.pem",
    )
    ssl_keystore_key: str | None = _pem_key("The private key, in PEM format, instead of a file.", "ssl.key.pem")
    ssl_keystore_password: str | None = key(
        default=None, secret=True, importance="high", doc="The password of a PKCS12 file in `ssl.keystore.location`."
    )
    ssl_keystore_type: str | None = _type_key("The format of the keystore.")
    ssl_certificate_location: str | None = _file_key(
        "A PEM file with this end's certificate chain, if the private key is in another file (`ssl.key.location`).",
        "ssl.certfile",
    )
    ssl_key_location: str | None = _file_key(
        "A PEM file with the private key of `ssl.certificate.location`.", "ssl.keyfile"
    )
    ssl_key_password: str | None = key(
        default=None,
        secret=True,
        importance="high",
        aliases=("ssl.password",),
        doc="The password of an encrypted private key.",
    )
    ssl_protocol: str = key(
        default="TLSv1.3",
        choices=("TLSv1.3", "TLSv1.2", "TLS"),
        doc="The highest TLS version. `TLS` is the same as `TLSv1.3`.",
    )
    ssl_enabled_protocols: tuple[str, ...] = key(
        default=VERSIONS,
        parse=_parse_versions,
        allowed="TLSv1.2 and TLSv1.3, separated by commas",
        show=",".join,
        doc="The TLS versions to offer or accept.",
    )
    ssl_cipher_suites: tuple[str, ...] = key(
        default=(),
        none_means=(),
        parse=_parse_ciphers,
        allowed="names of cipher suites, of the TLS standard or of OpenSSL, separated by commas or colons",
        show=",".join,
        aliases=("ssl.ciphers",),
        default_text="OpenSSL's",
        doc="The cipher suites to offer or accept, and no others: with suites of TLS 1.2 only, TLS 1.3 is off, and "
        "vice versa. Choosing among those of TLS 1.3 needs Python 3.15.",
    )
    ssl_crlfile: str | None = _file_key(
        "A PEM file with certificate revocation lists. The peer's certificate must be covered by one of them, and not "
        "be revoked.",
        "ssl.crl.location",
    )

    ssl_endpoint_identification_algorithm: str = key(
        default="https",
        importance="low",
        none_means="",
        parse=_parse_algorithm,
        accepts="str | bool",
        allowed="https, or empty text",
        aliases=("ssl.check.hostname",),
        doc="Whether a broker's certificate must be for the host name or address that is connected to: `https`, or "
        "empty for no such check. Without it, anyone with a certificate of the same authority can pose as a broker.",
    )

    @classmethod
    def tls_names(cls) -> frozenset[str]:
        """The dotted names of the keys of this table."""
        return frozenset(entry.name for entry in TlsConfig.entries if entry.attribute != "config_file")


def _check_protocol(draft: Draft) -> None:
    """Keys of TLS need `security.protocol` SSL or SASL_SSL. `ssl.context` replaces all other `ssl.*` keys."""
    # a value that is the default, as in a copy of another client's defaults, asks for nothing
    tls_names = TlsConfig.tls_names()
    used = [
        entry.name
        for entry in SecurityConfig.entries
        if (entry.name in tls_names or entry.name == "ssl.context")
        and draft.is_explicit(entry.attribute)
        and draft[entry.attribute] != entry.default
    ]
    protocol = draft["security_protocol"]
    # shared settings may have the keys of an encrypted listener as well; without a protocol, they are meant to be used
    if used and protocol not in TLS_PROTOCOLS and not draft.is_explicit("security_protocol"):
        draft.problem(
            f"{used[0]} is given, but security.protocol is {protocol}, so nothing would be encrypted; set "
            "security.protocol to SSL or SASL_SSL, or to PLAINTEXT if that is meant"
        )
    if draft["ssl_context"] is not None:
        others = [name for name in used if name != "ssl.context"]
        if others:
            draft.problem(f"ssl.context and {', '.join(others)} exclude each other; set the context up instead")


class SecurityConfig(
    TlsConfig,
    rules=(Rule(("security_protocol", "ssl_context"), _check_protocol),),
):
    """The keys by which a client secures its connections."""

    security_protocol: str = key(
        default=PLAINTEXT,
        importance="medium",
        choices=SECURITY_PROTOCOLS,
        doc="The protocol for connections to brokers. `SSL`: TLS. `SASL_SSL`: TLS and authentication with SASL. "
        "`PLAINTEXT`: neither encrypted nor authenticated. `SASL_PLAINTEXT`: authenticated only. See [Securing "
        "connections](securing.md).",
    )
    enable_ssl_certificate_verification: bool = key(
        default=True,
        importance="low",
        doc="Whether brokers' certificates are verified at all. `false` makes TLS useless against anyone who can "
        "redirect the connection.",
    )
    ssl_context: Any = key(
        default=None,
        importance="low",
        none_means=None,
        parse=_parse_context,
        accepts="SSLContext",
        allowed="an `ssl.SSLContext`, or an object with its `wrap_bio`",
        default_text="none",
        doc="A context of your own, instead of all other `ssl.*` keys. It can't be pickled, so Spark can't send it to "
        "its executors.",
    )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in TLS_PROTOCOLS
