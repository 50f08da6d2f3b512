"""Sixteen threads with one producer, and event loops that share one: the rounds of `support.thread_storm`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.thread_storm import PARTITIONS, Round, share_between_loops

from headrace.broker import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, config={"num.partitions": PARTITIONS}) as cluster:
        yield cluster


@pytest.mark.parametrize("seed", range(6))
def test_the_log_has_what_the_threads_sent(cluster: EmbeddedCluster, seed: int) -> None:
    Round(cluster, seed, 150).run()


@pytest.mark.parametrize("seed", range(2))
def test_no_await_on_any_loop_hangs(cluster: EmbeddedCluster, seed: int) -> None:
    share_between_loops(cluster, seed, 400)
