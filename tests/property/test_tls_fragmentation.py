"""TLS over connections that fragment at random: what arrives is what was sent, and never plaintext on the wire."""

from __future__ import annotations

from itertools import chain, cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tls import Credentials, TlsPair


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(Path(tmp_path_factory.mktemp("tls")))


sizes = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 70_000)), min_size=1, max_size=30).filter(any)
buffers = st.lists(st.integers(1, 300_000).map(lambda size: b"plaintext!" * (size // 10 + 1)), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(sizes=sizes, buffers=buffers, version=st.sampled_from(["TLSv1.2", "TLSv1.3"]), to_client=st.booleans())
def test_random_fragments(
    credentials: Credentials, sizes: list[int], buffers: list[bytes], version: str, to_client: bool
) -> None:
    pair = TlsPair(credentials.client_contexts(ssl_enabled_protocols=version), credentials.server_contexts())
    try:
        # the shortest ones would take very long for large buffers
        pair.shake_hands(chain(sizes, cycle([3, 70_000, 1_000])))
        carried = chain(sizes, cycle([70_000, 11]))
        assert pair.transfer(buffers, to_client=to_client, sizes=carried) == b"".join(buffers)
        assert not any(b"plaintext" in wire for wire in pair.wire)
    finally:
        pair.close()
