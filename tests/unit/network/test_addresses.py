from __future__ import annotations

import pytest

from headrace.network.addresses import Address, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9092", "localhost", 9092),
        (" broker-1.example.com:1 ", "broker-1.example.com", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("my_broker:9092", "my_broker", 9092),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("PLAINTEXT://localhost:9092", "localhost", 9092),
        ("plaintext://[::1]:9092", "::1", 9092),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", 9092),
        (" 10.0.0.1 ", "10.0.0.1", 9092),
        ("[::1]", "::1", 9092),
        ("PLAINTEXT://kafka", "kafka", 9092),
        ("localhost:1", "localhost", 1),
    ],
)
def test_a_default_port_is_taken_where_none_is_written(text: str, host: str, port: int) -> None:
    assert parse_address(text, 9092) == (host, port)


@pytest.mark.parametrize("text", ["", "localhost:", ":9092", "localhost:kafka", "localhost:0", "::1", "http://x"])
def test_a_default_port_excuses_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"has|put|ask"):
        parse_address(text, 9092)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no port; write localhost:9092"),
        ("localhost", "has no port; write localhost:9092"),
        ("localhost:", "has no port; write localhost:9092"),
        (":9092", "has no host; write localhost:9092"),
        ("localhost:kafka", "the port 'kafka', which is not a number"),
        ("localhost:-1", "the port '-1', which is not a number"),
        ("localhost:0", "ports go from 1 to 65535"),
        ("localhost:65536", "ports go from 1 to 65535"),
        ("localhost:١٢", "is not a number"),
        ("::1:9092", "put an IPv6 address in brackets"),
        ("[::1]", "write [::1]:9092"),
        ("[::1:9092", "no closing bracket"),
        ("[::1]9092", "is not [IPv6 address]:port"),
        ("http://localhost:9092/", "asks for http://"),
        ("localhost:9092/", "has a path"),
        ("PLAINTEXT://localhost:9092/x", "has a path"),
        ("http://localhost:9092", "only plain host:port is supported"),
        ("SSL://localhost:9092", "asks for SSL://"),
        ("lo*cal:9092", "characters that no host name has"),
        ("a:1 b:2", "has whitespace in it; separate addresses with commas"),
        ("a:1\tb:2", "has whitespace in it"),
        ("a:1;b:2", "has a semicolon in it; separate addresses with commas"),
        ("a:1,b:2", "has a comma in it; make each address an item of its own"),
    ],
)
def test_what_is_no_address_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert says in str(caught.value)
    assert repr(text.strip()) in str(caught.value)


@pytest.mark.parametrize("text", ["me:hunter2@h:1", "SASL_SSL://me:hunter2@h", "me:hunter2@", "me@hunter2@h:1"])
def test_who_writes_a_password_into_an_address_does_not_read_it_again(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'\*\*\*@.*' has a user name or password in it") as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["localhost:9092", "[::1]:9092", "[fe80::1%eth0]:9092"])
def test_an_address_prints_as_it_is_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.7", False),
        ("fe80::1%eth0", False),
        ("localhost.example.com", False),
    ],
)
def test_addresses_of_this_machine(host: str, is_loopback: bool) -> None:
    assert Address(host, 9092).is_loopback is is_loopback
