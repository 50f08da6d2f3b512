"""The log and a list of batches agree after any appends, truncations, rolls, deletions, kills and reopenings."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.loader import load_log
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.records.batch import read_batches
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000


class LogAgainstModel(RuleBasedStateMachine):
    """The model is the list of (first offset, values) and the log start offset."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = MockClock(wall_ms=NOW_MS)
        self.model = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.sequence = 0

    @initialize(segment_bytes=st.integers(200, 2000), interval=st.sampled_from([0, 100, 4096]))
    def begin(self, segment_bytes, interval):
        self.config = TopicConfig.resolve_from(
            {"segment.bytes": segment_bytes, "index.interval.bytes": interval, "retention.ms": -1}, {}, {}
        )
        self.open(is_clean=True)

    def open(self, *, is_clean):
        self.log = load_log(
            Path(self.folder.name, "t-0"),
            "t",
            0,
            config=self.config,
            clock=self.clock,
            is_clean=is_clean,
            recovery_point=0,
            log_start_offset=self.start,
            producer_id_expiration_ms=10**9,
        )
        self.log.advance_high_watermark(self.log.end.offset)

    def teardown(self):
        self.folder.cleanup()

    @rule(values=st.lists(st.binary(max_size=40), min_size=1, max_size=5), idempotent=st.booleans())
    def append(self, values, idempotent):
        header = {}
        if idempotent:
            header = {"producer_id": 4, "producer_epoch": 0, "base_sequence": self.sequence}
            self.sequence += len(values)
        records = [(NOW_MS + self.end + at, None, value) for at, value in enumerate(values)]
        batch = memoryview(bytearray(build_batch(records, **header)))
        info = self.log.append_as_leader(batch, check_client_batch(batch, self.config, NOW_MS), self.epoch)
        assert info.first_offset == self.end
        self.model.append((self.end, values, idempotent))
        self.end += len(values)
        self.log.advance_high_watermark(self.end)

    @rule()
    def next_epoch(self):
        self.epoch += 1

    @rule()
    def roll(self):
        self.log.roll()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        while self.model and self.model[-1][0] + len(self.model[-1][1]) > offset:
            self.model.pop()
        # Only whole batches remain, beginning with the log start offset.
        last = self.model[-1][0] + len(self.model[-1][1]) if self.model else 0
        self.end = max(last, self.start)
        self.sequence = sum(len(values) for _, values, idempotent in self.model if idempotent)

    @rule(data=st.data())
    def delete_records(self, data):
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start_offset(offset)
        self.log.delete_old_segments()
        self.start = offset

    @rule()
    def stop_and_start(self):
        self.log.flush()
        self.log.close()
        self.open(is_clean=True)

    @rule(garbage=st.binary(max_size=100))
    def kill_and_recover(self, garbage):
        with self.log.segments[-1].log.path.open("ab") as file:
            file.write(garbage)
        self.open(is_clean=False)

    @invariant()
    def ends_agree(self):
        if hasattr(self, "log"):
            assert self.log.end.offset == self.end
            assert self.log.log_start_offset == self.start

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), max_bytes=st.integers(0, 3000))
    def read(self, data, max_bytes):
        offset = data.draw(st.integers(self.start, self.end - 1))
        up_to = data.draw(st.integers(offset + 1, self.end))
        read = self.log.read(offset, max_bytes, up_to=up_to, min_one_batch=True)
        batches = [each for each in self.model if each[0] + len(each[1]) > offset and each[0] < up_to]
        whole = [each for each in batches if each[0] + len(each[1]) <= up_to]
        if read.region is None:
            assert not whole or whole[0] is not batches[0]
            return
        content = os.pread(read.region.file.fileno(), read.region.size_bytes, read.region.offset)
        found = [(each.base_offset, [record.value for record in each.records()]) for each in read_batches(content)]
        assert found
        assert found == [(first, values) for first, values, _ in batches[: len(found)]]

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def find_timestamp(self, data):
        target = data.draw(st.integers(self.start, self.end - 1))
        found = self.log.offset_for_timestamp(NOW_MS + target)
        assert found is not None
        assert found[0] == (NOW_MS + target, target)
        assert self.log.offset_for_timestamp(NOW_MS + self.end) is None


LogAgainstModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, phases=[Phase.explicit, Phase.generate]
)
TestLogAgainstModel = LogAgainstModel.TestCase
