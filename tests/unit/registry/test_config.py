"""The configuration of the schema registry's client."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.registry.client import SchemaRegistryClient
from headrace.registry.config import ClientConfig

URL = "http://localhost:8081"


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({}, "url has to name the schema registry"),
        ({"url": ""}, "url has an entry"),
        ({"url": "localhost:8081"}, "url has an entry"),
        ({"url": "http://localhost:port"}, "url has an entry"),
        ({"url": f"{URL}?x=1"}, "has a query or a fragment"),
        ({"url": "http://a:1@h,http://b:2@h"}, "different credentials"),
        ({"url": "http://a:1@h", "basic.auth.user.info": "a:1"}, "remove one of them"),
        ({"url": URL, "basic.auth.user.info": "nobody"}, "user:password"),
        ({"url": URL, "basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "remove one of them"),
        ({"url": URL, "urll": URL}, "did you mean 'url'?"),
        ({"url": URL, "timeout": 0}, "timeout=0 has to be a number of at least 0.001"),
        ({"url": URL, "max.retries": "3"}, "max.retries='3'"),
        ({"url": URL, "max.retries": True}, "max.retries=True"),
        ({"url": URL, "max.retries": 2.5}, "max.retries=2.5 has to be a whole number"),
        ({"url": URL, "cache.capacity": 0}, "cache.capacity=0"),
        ({"url": URL, "ssl.ca.location": "ca.pem"}, "no url begins with https://"),
        ({"url": "https://h", "ssl.ca.location": "/no/such/file"}, "can't be loaded"),
        ({"url": "https://h", "ssl.key.location": "/key"}, "need ssl.certificate.location"),
        ({"url": "https://h", "ssl.certificate.location": "/no/such/file"}, "can't be loaded"),
        ({"url": URL, "proxy": "proxy:3128"}, "proxy has to be a URL"),
        ({"url": URL, "bearer.auth.credentials.source": "OAUTHBEARER"}, "has to be one of STATIC_TOKEN, CUSTOM"),
        ({"url": URL, "bearer.auth.logical.cluster": "lsrc-1"}, "the bearer token is missing"),
        ({"url": URL, "bearer.auth.token": "a\nb"}, "a character that an HTTP header"),
        ({"url": URL, "bearer.auth.credentials.source": "CUSTOM"}, "provider.function has to be a function"),
        (
            {
                "url": URL,
                "bearer.auth.credentials.source": "CUSTOM",
                "bearer.auth.custom.provider.function": dict,
                "bearer.auth.token": "t",
            },
            "bearer.auth.token has no effect",
        ),
    ],
)
def test_what_is_wrong_is_named(conf: dict[str, Any], said: str):
    with pytest.raises(KafkaConfigurationError) as wrong:
        SchemaRegistryClient(conf)
    assert said in str(wrong.value)


def test_several_urls_and_credentials_in_one():
    config = ClientConfig.resolve({"url": "http://me:p%40ss@one:8081/sr/, https://[::1]:8082"})
    assert config.urls == ("http://one:8081/sr", "https://[::1]:8082")
    assert config.basic_auth == "me:p@ss"


@pytest.mark.parametrize(
    "conf",
    [
        {"url": "http://me:hunter2@h:1"},
        {"url": URL, "basic.auth.user.info": "me:hunter2"},
        {"url": URL, "bearer.auth.token": "hunter2"},
        {"url": URL, "proxy": "http://me:hunter2@proxy:1"},
    ],
)
def test_no_repr_shows_a_secret(conf: dict[str, Any]):
    assert "hunter2" not in repr(SchemaRegistryClient(conf)) + repr(ClientConfig.resolve(conf))


@pytest.mark.parametrize("url", ["ftp://me:hunter2@h", "http://me:hunter2@h:x", "http://me:hunter2@h?x=1"])
def test_no_error_shows_a_secret(url: str):
    with pytest.raises(KafkaConfigurationError) as wrong:
        SchemaRegistryClient({"url": url})
    assert "hunter2" not in str(wrong.value)


def test_a_token_comes_from_a_function_each_time():
    tokens = iter(("one", "two"))
    config = ClientConfig.resolve(
        {
            "url": URL,
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": lambda argument: {
                "bearer.auth.token": next(tokens) + argument,
                "bearer.auth.logical.cluster": "lsrc-1",
            },
            "bearer.auth.custom.provider.config": "!",
        }
    )
    assert config.bearer_headers is not None
    assert config.bearer_headers() == {"Authorization": "Bearer one!", "target-sr-cluster": "lsrc-1"}
    assert config.bearer_headers()["Authorization"] == "Bearer two!"
