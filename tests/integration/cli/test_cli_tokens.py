"""A command that authenticates with a token: it is fetched, used, and not fetched again once the client is closed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.token_endpoint import IdentityProvider
from support.waiting import wait_until

from headrace.cli.client import Client
from headrace.network.protocol.errors import AuthenticationError


def fetching_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("headrace-tokens")]


@pytest.mark.parametrize("is_accepted", [True, False])
def test_no_thread_fetches_tokens_for_a_client_that_is_closed_or_was_rejected(is_accepted: bool, tmp_path: Path):
    provider, other = IdentityProvider(), IdentityProvider()
    token = tmp_path / "token"
    token.write_text((provider if is_accepted else other).token())
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    with provider.cluster() as cluster:
        if is_accepted:
            with Client(cluster.bootstrap_servers, str(config)) as client:
                assert client.metadata([]).brokers
                assert fetching_threads()
        else:
            with pytest.raises(AuthenticationError):
                Client(cluster.bootstrap_servers, str(config))
        wait_until(lambda: not fetching_threads())
