"""The findings of `headrace doctor`: what each step found, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from ...network.clock import SYSTEM_CLOCK


class Step(Enum):
    """The steps in their order, each with its name and the exit code of a failure."""

    CONFIGURATION = ("configuration", 3)
    NAME = ("name", 4)
    TCP = ("TCP", 5)
    TLS = ("TLS", 6)
    SASL = ("SASL", 7)
    API_VERSIONS = ("ApiVersions", 8)
    BROKERS = ("brokers", 9)
    TOPIC = ("topic", 10)
    ACCESS = ("access", 11)
    WRITE = ("write", 12)
    #: It only warns.
    CLOCK = ("clock", 12)

    def __init__(self, label: str, exit_code: int) -> None:
        self.label = label
        self.exit_code = exit_code


class Status(Enum):
    """How a step ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """What a step found about `target`: an address, a broker, a topic or the configuration.

    `advice` says what to do about it, and `facts` has the measurements for programs.
    """

    step: Step
    status: Status
    target: str
    text: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The finding for JSON."""
        return {**asdict(self), "step": self.step.label, "status": self.status.value}


class Findings:
    """All findings in order. Calls `show` with each. One thread."""

    def __init__(self, show: Callable[[Finding], object] = lambda finding: None) -> None:
        self.all: list[Finding] = []
        self._show = show

    def add(self, step: Step, status: Status, target: str, text: str, advice: str = "", **facts: Any) -> None:
        """Add a finding and show it."""
        finding = Finding(step, status, target, text, advice, facts)
        self.all.append(finding)
        self._show(finding)

    def ok(self, step: Step, target: str, text: str, **facts: Any) -> None:
        self.add(step, Status.OK, target, text, **facts)

    def warn(self, step: Step, target: str, text: str, advice: str = "", **facts: Any) -> None:
        self.add(step, Status.WARNING, target, text, advice, **facts)

    def fail(self, step: Step, target: str, text: str, advice: str = "", **facts: Any) -> None:
        self.add(step, Status.FAILED, target, text, advice, **facts)

    def skip(self, step: Step, target: str, text: str) -> None:
        self.add(step, Status.SKIPPED, target, text)

    def of(self, status: Status) -> list[Finding]:
        """The findings with that status."""
        return [each for each in self.all if each.status is status]

    @property
    def exit_code(self) -> int:
        """0 without a failure, else the code of the earliest step that failed."""
        return min((each.step.exit_code for each in self.of(Status.FAILED)), default=0)


class Stopwatch:
    """A context that measures its body. `ms` are the milliseconds that it has taken."""

    def __enter__(self) -> Stopwatch:
        self._began_ms = SYSTEM_CLOCK.now_ms()
        self._took_ms: float | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._took_ms = SYSTEM_CLOCK.now_ms() - self._began_ms

    @property
    def ms(self) -> float:
        took = SYSTEM_CLOCK.now_ms() - self._began_ms if self._took_ms is None else self._took_ms
        return round(took, 1)
