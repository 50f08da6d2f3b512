"""Logs on a machine that loses power: a prefix of what was written is left, including everything flushed."""

from __future__ import annotations

import random
import uuid

import pytest
from support.power_cut import PowerCuts

from headrace.broker.config.topic_config import TopicConfig
from headrace.broker.log.manager import LogManager
from headrace.broker.log.validation import check_client_batch
from headrace.network.clock import MockClock
from headrace.network.records.builder_cy import build_batch

NOW_MS = 1_600_000_000_000
TOPIC_ID = uuid.UUID(int=5)
STEPS = 150


class Machine:
    """One log in a data directory, used at random until the power cut, and again after it."""

    def __init__(self, folder, seed, **settings):
        self.dice = random.Random(seed)
        self.folder = folder
        self.config = TopicConfig.resolve_from(
            {
                "segment.bytes": self.dice.choice([300, 1000, 5000]),
                "index.interval.bytes": self.dice.choice([0, 100, 4096]),
                "flush.messages": self.dice.choice([2**62, 7, 40]),
                **settings,
            },
            {},
            {},
        )
        self.epoch = 0
        self.written = 0
        #: What was written, by offset: (key, value, epoch).
        self.model = []
        self.start()

    def start(self):
        self.logs = LogManager(
            [self.folder],
            clock=MockClock(wall_ms=NOW_MS),
            cluster_id="c",
            node_id=1,
            config_of=lambda _: self.config,
            producer_id_expiration_ms=10**12,
        )
        self.logs.load()
        self.log = self.logs.get_or_create("t", 0, TOPIC_ID, self.config)

    def append(self):
        records = [
            (b"%d" % self.dice.randrange(12), b"%d" % (self.written + at)) for at in range(self.dice.randint(1, 4))
        ]
        self.written += len(records)
        batch = memoryview(bytearray(build_batch([(NOW_MS, key, value) for key, value in records])))
        self.log.append_as_leader(batch, check_client_batch(batch, self.config, NOW_MS), self.epoch)
        self.model += [(key, value, self.epoch) for key, value in records]
        self.log.advance_high_watermark(len(self.model))

    def truncate(self):
        """Truncate as a follower whose leader's log diverges; a new epoch begins."""
        self.log.truncate_to(self.dice.randint(max(0, len(self.model) - 10), len(self.model)))
        del self.model[self.log.end.offset :]
        self.epoch += 1

    def begin_epoch(self):
        self.epoch += 1

    def lose_power(self, power):
        self.logs.release()
        power.cut(self.folder, self.dice)
        self.start()
        self.epoch += 1

    def found(self):
        return {
            record.offset: (bytes(record.key), bytes(record.value), batch.partition_leader_epoch)
            for batch in self.log.batches(0, self.log.end.offset)
            for record in batch.records()
        }


@pytest.mark.parametrize("seed", range(25))
def test_a_log_that_is_appended_to_and_truncated(tmp_path, seed):
    """Truncated records may reappear if nothing replaced them: their epoch shows the leader that they are old."""
    with PowerCuts(tmp_path) as power:
        machine = Machine(tmp_path, seed)
        ever = set()
        for _ in range(STEPS):
            steps = [machine.append] * 8 + [machine.truncate, machine.begin_epoch, machine.log.flush, machine.log.roll]
            step = machine.dice.choice([*steps, machine.logs.checkpoint, None])
            if step is not None:
                step()
                ever |= set(enumerate(machine.model))
                continue
            flushed = machine.model[: machine.log.recovery_point]
            machine.lose_power(power)
            found = machine.found()
            left = list(found.values())
            assert list(found) == list(range(machine.log.end.offset))
            assert left[: len(flushed)] == flushed
            assert set(found.items()) <= ever
            epochs = [epoch for _, _, epoch in left]
            assert epochs == sorted(epochs)
            assert machine.log.leader_epochs.entries == [(epoch, epochs.index(epoch)) for epoch in sorted({*epochs})]
            machine.model = left
            machine.log.advance_high_watermark(len(left))


@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_is_compacted(tmp_path, seed):
    with PowerCuts(tmp_path) as power:
        machine = Machine(tmp_path, seed, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        for _ in range(STEPS):
            steps = [machine.append] * 8 + [machine.begin_epoch, machine.log.flush, machine.log.roll]
            step = machine.dice.choice([*steps, machine.logs.checkpoint, machine.logs.clean_logs, None])
            if step is not None:
                step()
                continue
            flushed = machine.log.recovery_point
            machine.lose_power(power)
            found = machine.found()
            assert flushed <= machine.log.end.offset <= len(machine.model)
            del machine.model[machine.log.end.offset :]
            assert all(machine.model[offset] == record for offset, record in found.items())
            last = {key: offset for offset, (key, _, _) in enumerate(machine.model)}
            assert set(last.values()) <= set(found)
            machine.log.advance_high_watermark(len(machine.model))


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_stop_keeps_everything(tmp_path, seed):
    """Everything flushed remains; the clean-shutdown marker doesn't reappear after the start that removed it."""
    with PowerCuts(tmp_path) as power:
        machine = Machine(tmp_path, seed)
        for _ in range(4):
            for _ in range(20):
                machine.append()
            machine.logs.close()
            machine.lose_power(power)
            assert list(machine.found().values()) == machine.model
            machine.append()
            whole = machine.model[:-4]
            machine.lose_power(power)
            left = list(machine.found().values())
            assert left[: len(whole)] == whole
            assert left == machine.model[: len(left)]
            machine.model = left
