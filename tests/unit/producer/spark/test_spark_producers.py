"""Tests the cache of one producer per configuration and worker: created lazily, reused, closed when idle or failed."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.column_bench import FakeProducer

from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.producer.spark import producers
from headrace.producer.spark.producers import ProducerCache

CONFIG: Any = None


class Made:
    """Creates producers and records them."""

    def __init__(self) -> None:
        self.producers: list[FakeProducer] = []

    def __call__(self, config: Any) -> Any:
        self.producers.append(FakeProducer())
        return self.producers[-1]


def test_tasks_share_a_producer_by_configuration() -> None:
    made = Made()
    cache = ProducerCache(MockClock(), make=made)
    with cache.lease(b"a", CONFIG) as first, cache.lease(b"a", CONFIG) as second, cache.lease(b"b", CONFIG) as other:
        assert first is second
        assert other is not first
    with cache.lease(b"a", CONFIG) as again:
        assert again is first
    assert len(made.producers) == 2
    cache.close()
    assert [producer.closed_with for producer in made.producers] == [0, 0]


def test_a_failed_task_takes_its_producer_along() -> None:
    made = Made()
    cache = ProducerCache(MockClock(), make=made)
    with pytest.raises(ValueError, match="poison"), cache.lease(b"a", CONFIG):
        raise ValueError("poison")
    assert made.producers[0].closed_with == 0
    with cache.lease(b"a", CONFIG) as fresh:
        assert fresh is made.producers[1]
    cache.close()


def test_a_failed_producer_lasts_until_its_other_tasks_end() -> None:
    made = Made()
    cache = ProducerCache(MockClock(), make=made)
    with cache.lease(b"a", CONFIG):
        with pytest.raises(ValueError, match="poison"), cache.lease(b"a", CONFIG):
            raise ValueError("poison")
        assert made.producers[0].closed_with is None
    assert made.producers[0].closed_with == 0
    assert len(cache) == 0


def test_an_idle_producer_is_closed() -> None:
    made = Made()
    clock = MockClock()
    cache = ProducerCache(clock, idle_ms=10, make=made)
    with cache.lease(b"a", CONFIG):
        pass
    janitor = cache._janitor
    assert janitor is not None
    clock.advance(10)
    janitor.join(30)
    assert not janitor.is_alive()
    assert made.producers[0].closed_with == 0
    assert len(cache) == 0
    with cache.lease(b"a", CONFIG) as fresh:
        assert fresh is made.producers[1]
    cache.close()


def test_a_producer_in_use_is_not_idle() -> None:
    made = Made()
    clock = MockClock()
    cache = ProducerCache(clock, idle_ms=10, make=made)
    with cache.lease(b"a", CONFIG), cache.lease(b"b", CONFIG):
        pass
    with cache.lease(b"a", CONFIG):
        janitor = cache._janitor
        assert janitor is not None
        clock.advance(100)
        while made.producers[1].closed_with is None:
            SYSTEM_CLOCK.sleep(1)
        assert made.producers[0].closed_with is None
        assert len(cache) == 1
    clock.advance(100)
    janitor.join(30)
    assert made.producers[0].closed_with == 0


def test_a_forked_process_has_a_cache_of_its_own() -> None:
    before = producers.worker_producers()
    child = os.fork()
    if child == 0:
        os._exit(0 if producers.worker_producers() is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert producers.worker_producers() is before
