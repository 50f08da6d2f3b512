"""The purgatory against a model: operations over any keys, changes, time, cancelling and purging in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.timers import manual_timer

from headrace.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from headrace.network.clock import MockClock

KEYS = ("a", "b", "c", "d")
keys = st.sampled_from(KEYS)


class SumOperation(DelayedOperation):
    """Completable when the counters of its keys add up to `required`."""

    def __init__(self, counters: dict[str, int], watched: tuple[str, ...], required: int, delay_ms: float) -> None:
        super().__init__(delay_ms)
        self.counters = counters
        self.watched = watched
        self.required = required
        self.completions = 0
        self.expirations = 0

    @property
    def is_satisfied(self) -> bool:
        return sum(self.counters[key] for key in self.watched) >= self.required

    def try_complete(self) -> bool:
        return self.is_satisfied and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1


@dataclass
class Waiting:
    """The model's state of a waiting operation."""

    operation: SumOperation
    expiration_ms: float | None
    places: set[str] = field(default_factory=set)


class PurgatoryModel(RuleBasedStateMachine):
    @initialize(purge_interval=st.integers(0, 8))
    def start(self, purge_interval: int) -> None:
        self.clock = MockClock()
        self.timer = manual_timer(self.clock, wheel_size=4)
        self.purge_interval = purge_interval
        self.purgatory: DelayedOperationPurgatory[SumOperation] = DelayedOperationPurgatory(
            "Model", self.timer, purge_interval=purge_interval
        )
        self.counters = dict.fromkeys(KEYS, 0)
        self.waiting: list[Waiting] = []
        self.completed: list[tuple[SumOperation, bool]] = []  # and whether by timeout
        self.handed_over: list[SumOperation] = []

    def complete(self, waiting: Waiting, *, by_time: bool = False) -> None:
        self.waiting.remove(waiting)
        self.completed.append((waiting.operation, by_time))

    @rule(watched=st.lists(keys, min_size=1, unique=True), required=st.integers(0, 6), delay_ms=st.integers(0, 50))
    def add(self, watched: list[str], required: int, delay_ms: int) -> None:
        base = sum(self.counters[key] for key in watched)
        operation = SumOperation(self.counters, tuple(watched), base + required, delay_ms)
        assert self.purgatory.try_complete_else_watch(operation, watched) == (required == 0)
        if required == 0:
            self.completed.append((operation, False))
        elif delay_ms == 0:
            self.completed.append((operation, True))
        else:
            self.waiting.append(Waiting(operation, self.clock.now_ms() + delay_ms, set(watched)))

    @rule(key=keys)
    def change_unnoticed(self, key: str) -> None:
        self.counters[key] += 1

    @rule(key=keys, change=st.integers(0, 3))
    def change_and_check(self, key: str, change: int) -> None:
        self.counters[key] += change
        due = [each for each in self.waiting if key in each.places and each.operation.is_satisfied]
        assert self.purgatory.check_and_complete(key) == len(due)
        for each in due:
            self.complete(each)

    @rule(duration_ms=st.integers(0, 30))
    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        while self.timer.advance_clock(0):
            pass
        for each in list(self.waiting):
            if each.expiration_ms is not None and each.expiration_ms <= self.clock.now_ms():
                self.complete(each, by_time=True)

    @rule(key=keys)
    def cancel(self, key: str) -> None:
        cancelled = [each for each in self.waiting if key in each.places]
        assert set(self.purgatory.cancel_for_key(key)) == {each.operation for each in cancelled}
        for each in cancelled:
            each.places.remove(key)
            each.expiration_ms = None
            if not each.places:
                self.waiting.remove(each)
                self.handed_over.append(each.operation)

    @rule(data=st.data())
    def force(self, data: st.DataObject) -> None:
        if self.waiting:
            each = data.draw(st.sampled_from(self.waiting))
            assert each.operation.force_complete()
            assert not each.operation.force_complete()
            self.complete(each)

    @rule()
    def purge(self) -> None:
        self.purgatory.purge_if_due()
        # partly cancelled operations wait without a timeout, and their entries don't count as pending
        pending_places = sum(len(each.operation.watched) for each in self.waiting if each.expiration_ms is not None)
        assert self.purgatory.watched - pending_places <= max(
            self.purge_interval, pending_places, self.places_of_the_waiting() - pending_places
        )

    def places_of_the_waiting(self) -> int:
        return sum(len(each.places) for each in self.waiting)

    @invariant()
    def each_is_completed_exactly_once_and_the_rest_waits(self) -> None:
        if not hasattr(self, "purgatory"):
            return
        for operation, by_time in self.completed:
            assert (operation.completions, operation.expirations) == (1, int(by_time))
        for operation in (*(each.operation for each in self.waiting), *self.handed_over):
            assert (operation.completions, operation.is_completed) == (0, False)
        timed = [each for each in self.waiting if each.expiration_ms is not None]
        assert self.purgatory.num_delayed == self.timer.size == len(timed)
        assert self.purgatory.watched >= self.places_of_the_waiting()

    def teardown(self) -> None:
        """Finally, every waiting operation is found under its remaining keys."""
        if hasattr(self, "purgatory"):
            for key in KEYS:
                self.counters[key] += 100
                self.purgatory.check_and_complete(key)
            assert all(each.operation.completions == 1 for each in self.waiting)
            assert self.purgatory.watched == 0
            assert self.timer.size == 0


PurgatoryModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPurgatoryModel = PurgatoryModel.TestCase
