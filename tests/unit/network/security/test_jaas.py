"""Java's login configuration."""

from __future__ import annotations

import pytest

from headrace.network.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        (
            f'{PLAIN} required username="alice" password="a b;c=d";',
            "PlainLoginModule",
            {"username": "alice", "password": "a b;c=d"},
        ),
        (
            f"  {PLAIN}\n  REQUIRED\n  username=alice password='x' ;  ",
            "PlainLoginModule",
            {"username": "alice", "password": "x"},
        ),
        (f'{PLAIN} required password="say \\"hi\\" \\\\";', "PlainLoginModule", {"password": 'say "hi" \\'}),
        (
            f'{PLAIN} required user_admin="x" user_alice="y";',
            "PlainLoginModule",
            {"user_admin": "x", "user_alice": "y"},
        ),
        (f'kafkashaded.{PLAIN} required username = "token";', "PlainLoginModule", {"username": "token"}),
        ("a.ScramLoginModule required;", "ScramLoginModule", {}),
        (
            "com.sun.security.auth.module.Krb5LoginModule optional useKeyTab=true;",
            "Krb5LoginModule",
            {"useKeyTab": "true"},
        ),
    ],
)
def test_an_entry_is_read(text, module, options):
    entry = parse_jaas(text)
    assert (entry.module, entry.options) == (module, options)
    assert "alice" not in repr(entry)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends with a semicolon"),
        (f'{PLAIN} required password="hush"', "ends with a semicolon"),
        (f'{PLAIN} password="hush";', "no control flag"),
        (f'{PLAIN} required password="hush;', "not closed"),
        (f"{PLAIN} required password;", "without a value"),
        (f"{PLAIN} required password= ;", "without a value"),
        (f'{PLAIN} required password="hush"; {PLAIN} required;', "more than one"),
        ("com.example.HushLoginModule required;", "not supported; choose one of PlainLoginModule"),
    ],
)
def test_anything_else_is_refused_without_a_value_in_the_message(text, problem):
    with pytest.raises(ValueError, match=problem) as failed:
        parse_jaas(text)
    assert "hush" not in str(failed.value).lower()
