"""Interleaved rounds: in each round every client runs once, in alternating order."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from .brokers import Broker, BrokerUnavailableError
from .clients import Client
from .process import ClientUnavailableError, Job, RunFailedError
from .results import ClientResult, ShapeResult
from .shapes import Mode, Shape

#: The part of a run's records that the warm-up of a broker sends.
WARM_UP_SHARE = 0.2


class Runner:
    """Measures shapes against one running broker.

    `scale` multiplies the records of every shape. A client that can't run a shape, or fails, is left out of its
    remaining rounds; `failures` has the errors.
    """

    def __init__(self, broker: Broker, clients: Mapping[str, type[Client]], rounds: int, scale: float = 1.0) -> None:
        self._broker = broker
        self._clients = clients
        self._rounds = rounds
        self._scale = scale
        self.failures: list[str] = []

    def warm_up(self, shape: Shape) -> None:
        """One short round without a result, because the first run on a broker is slower than the others."""
        for name, client in self._clients.items():
            if client.refusal(shape) is None and shape.mode is not Mode.COLD_START:
                self._run(name, shape, ClientResult(), WARM_UP_SHARE)

    def measure(self, shape: Shape) -> ShapeResult:
        """All rounds of one shape."""
        result = ShapeResult(shape, {name: ClientResult() for name in self._clients})
        for name, client in self._clients.items():
            result.clients[name].missing = client.refusal(shape) or ""
        for number in range(self._rounds):
            names = list(self._clients) if number % 2 == 0 else list(self._clients)[::-1]
            for name in names:
                if not result.clients[name].missing:
                    self._run(name, shape, result.clients[name])
        return result

    def _run(self, name: str, shape: Shape, result: ClientResult, share: float = 1.0) -> None:
        client = self._clients[name]
        records = shape.records_at(client.share * self._scale * share)
        try:
            broker = self._broker.secured() if shape.tls else self._broker
            with broker.topic(shape.partitions) as topic:
                job = Job(name, shape.name, topic.bootstrap_servers, topic.name, records, topic.security)
                measured = job.run(client.environment)
                if shape.mode is not Mode.COLD_START:
                    found, written = topic.records(), measured.written
                    # the markers of transactions have offsets, too
                    if found < written or (found > written and shape.mode is not Mode.TRANSACTIONS):
                        raise RunFailedError(f"{name}, {shape.name}: the topic has {found} of {written} records")
        except (BrokerUnavailableError, ClientUnavailableError) as missing:
            result.missing = f"not available: {missing}"
            result.rounds.clear()
        except RunFailedError as failed:
            print(f"\n{failed}", file=sys.stderr)
            self.failures.append(str(failed))
            result.missing = "failed"
            result.rounds.clear()
        else:
            result.rounds.append(measured)
