"""Whatever the network does to an idempotent producer: the log has each record once, and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.sender_harness import FakeLeader, SenderHarness, batch_of

NOT_LEADER = 6
MESSAGE_TOO_LARGE = 10

#: What may become of the oldest request that waits: whether the leader gets it, and what answer comes back.
OUTCOMES = ("answered", "answer lost", "lost", "not leader", "not in time", "too large")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 3), st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)), max_size=60))
def test_each_record_is_in_the_log_once_and_in_order(steps: list[int | str]) -> None:
    h, leader = SenderHarness(established=False), FakeLeader()
    futures = []
    for step in steps:
        if isinstance(step, int):
            futures += [h.append(b"%d" % (len(futures) + i)) for i in range(step)]
            h.send()
        elif h.client.requests:
            request = h.client.requests[0]
            if step == "lost":
                # with it goes all that was sent behind it on this connection
                h.lose(*list(h.client.requests))
            elif step == "answer lost":
                for sent in list(h.client.requests):
                    leader.append(sent)
                h.lose(*list(h.client.requests))
            elif step == "not leader":
                h.answer(request, NOT_LEADER)
            elif step == "not in time":
                # appended, and then not replicated in time
                code, _ = leader.append(request)
                h.answer(request, code or 7)
            elif step == "too large" and batch_of(request).count > 1 and not leader.has(request):
                h.answer(request, MESSAGE_TOO_LARGE)
            else:
                code, offset = leader.append(request)
                h.answer(request, code, offset)
            h.retry()
    for _ in range(200):
        if not h.accumulator.has_incomplete:
            break
        while h.client.requests:
            request = h.client.requests[0]
            code, offset = leader.append(request)
            h.answer(request, code, offset)
        h.retry()
    assert leader.log == [b"%d" % i for i in range(len(futures))]
    assert all(future.exception(0) is None for future in futures)
    assert h.free_bytes == h.pool.total_bytes
