"""The configuration of `SchemaRegistryClient`: confluent-kafka's keys, checked."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ..network.protocol.errors import KafkaConfigurationError

#: Key -> its default. None: there is none.
KEYS: dict[str, Any] = {
    "url": None,
    "basic.auth.user.info": None,
    "bearer.auth.credentials.source": None,
    "bearer.auth.token": None,
    "bearer.auth.logical.cluster": None,
    "bearer.auth.identity.pool.id": None,
    "bearer.auth.custom.provider.function": None,
    "bearer.auth.custom.provider.config": None,
    "ssl.ca.location": None,
    "ssl.certificate.location": None,
    "ssl.key.location": None,
    "ssl.key.password": None,
    "proxy": None,
    "timeout": 10.0,
    "max.retries": 3,
    "retries.wait.ms": 1000,
    "retries.max.wait.ms": 20000,
    "cache.capacity": 1000,
    "cache.latest.ttl.sec": None,
}
_SOURCES = ("STATIC_TOKEN", "CUSTOM")
#: The HTTP header of each field that a bearer token's provider returns.
_BEARER_HEADERS = {
    "bearer.auth.token": "Authorization",
    "bearer.auth.logical.cluster": "target-sr-cluster",
    "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
}


@dataclass(frozen=True)
class ClientConfig:
    """The checked configuration. Its repr shows no secret."""

    urls: tuple[str, ...]
    timeout_s: float
    max_retries: int
    retries_wait_ms: float
    retries_max_wait_ms: float
    cache_capacity: int
    latest_ttl_ms: float | None
    proxy: str | None = field(repr=False)
    basic_auth: str | None = field(repr=False)
    #: Returns the headers that carry the bearer token; None if there is none.
    bearer_headers: Callable[[], dict[str, str]] | None = field(repr=False)
    ssl_context: ssl.SSLContext | None = field(repr=False)

    @classmethod
    def resolve(cls, conf: Mapping[str, Any]) -> ClientConfig:
        """Check a configuration. Raises KafkaConfigurationError, which names the key."""
        values = checked_keys(conf, KEYS, "schema registry client")
        urls, user_info = _urls(values["url"])
        basic = values["basic.auth.user.info"]
        if basic is not None:
            if user_info is not None:
                raise KafkaConfigurationError(
                    "url contains a user name, and basic.auth.user.info is set, too; remove one of them"
                )
            if not isinstance(basic, str) or ":" not in basic:
                raise KafkaConfigurationError("basic.auth.user.info has to be of the form user:password")
        basic = basic or user_info
        bearer = _bearer(values)
        if basic is not None and bearer is not None:
            raise KafkaConfigurationError("both basic.auth.user.info and a bearer token are set; remove one of them")
        ttl_s = None if values["cache.latest.ttl.sec"] is None else _number(values, "cache.latest.ttl.sec", 0)
        return cls(
            urls=urls,
            timeout_s=_number(values, "timeout", 0.001),
            max_retries=_whole(values, "max.retries", 0),
            retries_wait_ms=_number(values, "retries.wait.ms", 0),
            retries_max_wait_ms=_number(values, "retries.max.wait.ms", 0),
            cache_capacity=_whole(values, "cache.capacity", 1),
            latest_ttl_ms=None if ttl_s is None else ttl_s * 1000.0,
            proxy=_proxy(values["proxy"]),
            basic_auth=basic,
            bearer_headers=bearer,
            ssl_context=_ssl_context(values, urls),
        )


def checked_keys(conf: Mapping[str, Any] | None, keys: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return `keys` with the values of `conf`. Raises KafkaConfigurationError for a key that is not among them."""
    if conf is not None and not isinstance(conf, Mapping):
        raise KafkaConfigurationError(
            f"the configuration of the {owner} is a {type(conf).__name__}, not a dict of keys such as "
            f"{{{next(iter(keys))!r}: ...}}"
        )
    values = dict(keys)
    for key, value in (conf or {}).items():
        if key not in keys:
            close = difflib.get_close_matches(str(key), keys, n=1, cutoff=0.5)
            meant = f"; did you mean {close[0]!r}?" if close else f"; the keys are {', '.join(keys)}"
            raise KafkaConfigurationError(f"{key!r} is not a configuration key of the {owner}{meant}")
        if value is not None:
            values[key] = value
    return values


def _number(values: Mapping[str, Any], key: str, at_least: float) -> float:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not at_least <= value < float("inf"):
        raise KafkaConfigurationError(f"{key}={value!r} has to be a number of at least {at_least:g}")
    return float(value)


def _whole(values: Mapping[str, Any], key: str, at_least: int) -> int:
    number = _number(values, key, at_least)
    if not number.is_integer():
        raise KafkaConfigurationError(f"{key}={values[key]!r} has to be a whole number of at least {at_least}")
    return int(number)


def _urls(value: Any) -> tuple[tuple[str, ...], str | None]:
    """The addresses without credentials, and the credentials as user:password."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise KafkaConfigurationError(
            "url has to name the schema registry, as in 'http://localhost:8081'; several are separated by commas"
        )
    urls: list[str] = []
    user_info: str | None = None
    for each in (text.strip() for text in given):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host:
            # not shown: it may have a password in a place where none is found
            raise KafkaConfigurationError("url has an entry that is not of the form http://host:port or https://...")
        if parts.query or parts.fragment:
            raise KafkaConfigurationError(f"url: the address of {host} has a query or a fragment; remove it")
        if parts.username is not None:
            found = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            if user_info not in (None, found):
                raise KafkaConfigurationError("url contains different credentials; all addresses share one user")
            user_info = found
        host = f"[{host}]" if ":" in host else host
        netloc = host if port is None else f"{host}:{port}"
        urls.append(urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", "")))
    if not urls:
        raise KafkaConfigurationError("url is empty; name the schema registry, as in 'http://localhost:8081'")
    return tuple(urls), user_info


def _proxy(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or urlsplit(value).scheme not in ("http", "https"):
        raise KafkaConfigurationError("proxy has to be a URL, as in 'http://proxy.example:3128'")
    return value


def _bearer(values: Mapping[str, Any]) -> Callable[[], dict[str, str]] | None:
    """The provider of the headers with the bearer token; None if no token is configured."""
    source = values["bearer.auth.credentials.source"]
    used = [key for key in values if key.startswith("bearer.auth.") and values[key] is not None]
    if source is None:
        if not used:
            return None
        source = "STATIC_TOKEN"
    if source not in _SOURCES:
        raise KafkaConfigurationError(
            f"bearer.auth.credentials.source={source!r} has to be one of {', '.join(_SOURCES)}; with CUSTOM, "
            "bearer.auth.custom.provider.function returns the token of any other source"
        )
    custom = [key for key in used if key.startswith("bearer.auth.custom.")]
    if source == "STATIC_TOKEN":
        if custom:
            raise KafkaConfigurationError(f"{custom[0]} has no effect without bearer.auth.credentials.source=CUSTOM")
        fixed = {key: values[key] for key in _BEARER_HEADERS if values[key] is not None}
        headers = _bearer_headers(fixed)
        return lambda: headers
    function = values["bearer.auth.custom.provider.function"]
    if not callable(function):
        raise KafkaConfigurationError(
            "bearer.auth.custom.provider.function has to be a function that returns the fields of the token"
        )
    static = [key for key in used if key in _BEARER_HEADERS]
    if static:
        raise KafkaConfigurationError(f"{static[0]} has no effect with bearer.auth.credentials.source=CUSTOM")
    argument = values["bearer.auth.custom.provider.config"]
    return lambda: _bearer_headers(function(argument))


def _bearer_headers(fields: Any) -> dict[str, str]:
    if not isinstance(fields, Mapping) or not isinstance(fields.get("bearer.auth.token"), str):
        raise KafkaConfigurationError(
            "the bearer token is missing: bearer.auth.token, or the field of that name that the function of "
            "bearer.auth.custom.provider.function returns, has to be text"
        )
    headers = {header: str(fields[key]) for key, header in _BEARER_HEADERS.items() if fields.get(key) is not None}
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise KafkaConfigurationError("a field of the bearer token has a character that an HTTP header can't have")
    headers["Authorization"] = f"Bearer {headers['Authorization']}"
    return headers


def _ssl_context(values: Mapping[str, Any], urls: tuple[str, ...]) -> ssl.SSLContext | None:
    """The context for https; None if every address is http. `ssl.ca.location=False` turns verification off."""
    ca = values["ssl.ca.location"]
    certificate, key = values["ssl.certificate.location"], values["ssl.key.location"]
    password = values["ssl.key.password"]
    given = [name for name in values if name.startswith("ssl.") and values[name] is not None]
    if not any(url.startswith("https:") for url in urls):
        if given:
            raise KafkaConfigurationError(f"{given[0]} is set, but no url begins with https://")
        return None
    if certificate is None and (key is not None or password is not None):
        raise KafkaConfigurationError("ssl.key.location and ssl.key.password need ssl.certificate.location")
    if ca is not None and ca is not False and not isinstance(ca, (str, Path)):
        raise KafkaConfigurationError("ssl.ca.location has to be the path of a file or of a directory")
    try:
        if ca is None or ca is False:
            context = ssl.create_default_context()
        elif Path(ca).is_dir():
            context = ssl.create_default_context(capath=str(ca))
        else:
            context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as failed:
        raise KafkaConfigurationError(f"ssl.ca.location={str(ca)!r} can't be loaded: {failed}") from failed
    if ca is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password)
        except (OSError, ssl.SSLError, TypeError) as failed:
            raise KafkaConfigurationError(
                f"ssl.certificate.location={str(certificate)!r} can't be loaded with ssl.key.location "
                f"({type(failed).__name__}: {failed})"
            ) from failed
    return context
