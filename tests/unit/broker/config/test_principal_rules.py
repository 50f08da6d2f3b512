"""`ssl.principal.mapping.rules`: the examples of KIP-371 and of Kafka's SslPrincipalMapperTest."""

from __future__ import annotations

import pytest

from headrace.broker.config.principal_rules import map_principal, parse_principal_rules, show_principal_rules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=Ops,O=mycp,L=Fulton,ST=MD,C=US", "duke@ops"),
        ("cn=duke,ou=ops,dc=mycp,dc=com", "DUKE@OPS"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_decides(subject: str, name: str) -> None:
    assert map_principal(parse_principal_rules(RULES), subject) == name


def test_without_a_match_there_is_no_name() -> None:
    assert map_principal(parse_principal_rules("RULE:^CN=(.*?),OU=x$/$1/"), "CN=a,OU=y") is None


def test_slashes_are_escaped() -> None:
    rules = parse_principal_rules(r"RULE:^CN=host\/(.*)$/service\/$1/")
    assert map_principal(rules, "CN=host/b1") == "service/b1"


def test_rules_are_shown_as_they_were_given() -> None:
    assert show_principal_rules(parse_principal_rules(RULES)) == RULES
    assert show_principal_rules(parse_principal_rules("")) == "DEFAULT"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("RULE:^CN=(.*)$", "neither RULE:pattern/replacement/"),
        ("RULE:^CN=(.*)$/$1/X", "neither RULE"),
        ("default", "neither RULE"),
        ("RULE:^CN=((.*)$/$1/", "is not valid"),
        ("RULE:^CN=(.*)$/$2/", r"refers to \$2, but"),
        (5, "is not text"),
    ],
)
def test_what_is_no_rule(given: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_principal_rules(given)
