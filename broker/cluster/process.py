"""The launcher of broker processes: `python -m headrace.broker.cluster.process`, started by `ProcessCluster` only.

This process imports the broker's modules once, forks one process per broker while it has only its main thread, and
waits for them to end.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.api import ApiKey
from ...network.protocol.errors import IllegalStateError, KafkaError
from ...network.records.record import Record
from ..config.listeners import Listener
from ..config.releases import highest_versions
from ..replica.connection import CutLinks
from ..requests.control import Control, Registration, RequestSeen
from ..requests.faults import Fault
from ..services import inspection
from ..telemetry.push import TelemetryPush
from ..transaction.transaction import TransactionValues
from .node import Broker
from .remote import RemoteController, from_text

if TYPE_CHECKING:
    from ..services.observation import BrokerSeen, NewRecord, RecordQuery, RecordsRead

_WATCH_S = 0.2


class _Asked:
    """Carries out the requests of the cluster's process; each public method is one request."""

    def __init__(self, control: Control, links: CutLinks, claim_fault: Callable[[int], bool]) -> None:
        self._control = control
        self._links = links
        self._claim_fault = claim_fault
        self._faults: dict[int, Registration] = {}
        self.broker: Broker | None = None

    def __call__(self, what: str, *arguments: Any) -> Any:
        if what.startswith("_"):
            raise IllegalStateError(f"a broker can't be asked for {what}")
        return getattr(self, what)(*arguments)

    def _own(self) -> Broker:
        if self.broker is None:
            raise IllegalStateError("the broker is still starting; try again")
        return self.broker

    def inject(self, number: int, api_key: ApiKey | None, fault: Fault) -> None:
        # The cluster's process counts the hits, over all brokers.
        self._faults[number] = self._control.fault(api_key, fault, times=None, claim=lambda: self._claim_fault(number))

    def remove_fault(self, number: int) -> None:
        registration = self._faults.pop(number, None)
        if registration is not None:
            registration.remove()

    def act_as(self, release: str | None) -> None:
        self._control.max_versions = highest_versions(release)

    def cut_links(self, cut: frozenset[frozenset[int]]) -> None:
        cut_now = cut - self._links.cut
        self._links.cut = cut
        if self.broker is not None and any(self.broker.node_id in pair for pair in cut_now):
            self.broker.fetchers.disconnect()

    def close_connections(self) -> None:
        self._own().server.close_connections()

    def requests(self) -> list[RequestSeen]:
        return self._control.recent()

    def records(self, topic: str, partition: int) -> list[Record]:
        return inspection.records(self._own(), topic, partition)

    def producer_state(self, topic: str, partition: int) -> dict[int, Any]:
        return inspection.producer_state(self._own(), topic, partition)

    def group_fields(self, group_id: str) -> dict[str, Any] | None:
        return inspection.group_fields(self._own(), group_id)

    def transactions(self) -> dict[str, TransactionValues]:
        return inspection.transactions(self._own())

    def telemetry_pushes(self) -> list[TelemetryPush]:
        return self._own().telemetry.pushes()

    def waiting(self) -> dict[str, int]:
        return inspection.waiting(self._own())

    def overview(self, after: RequestSeen | None) -> BrokerSeen:
        from ..services import observation  # noqa: PLC0415 - for clusters with a console

        broker = self._own()
        return observation.overview(broker, broker.server.connection_count, after)

    def read_records(self, query: RecordQuery) -> RecordsRead:
        from ..services import observation  # noqa: PLC0415 - for clusters with a console

        return observation.read_records(self._own(), query)

    def append_record(self, record: NewRecord) -> int:
        from ..services import observation  # noqa: PLC0415 - for clusters with a console

        return observation.append_record(self._own(), record)


def serve(settings: dict[str, Any]) -> int:
    """Run a broker until SIGTERM, or until the controller is gone. Returns the process's exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(threadName)s %(name)s: %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    controller = RemoteController(socket.socket(fileno=settings["descriptor"]))
    control, links = Control(), CutLinks()
    asked = _Asked(control, links, controller.claim_fault)
    try:
        broker = asked.broker = Broker(
            settings["node_id"],
            tuple(map(Path, settings["directories"])),
            config=from_text(settings["config"]),
            clock=SYSTEM_CLOCK,
            controller=controller,
            control=control,
            links=links,
            listeners=tuple(Listener(*each) for each in settings["listeners"]),
            advertised={name: (host, port) for name, (host, port) in settings["advertised"].items()},
            rack=settings["rack"],
        )
    except KafkaError as failed:
        # for example a port or directory in use: report it over the link to the process that started the cluster
        controller.report_start_failure(failed)
        return 1
    controller.register(broker.endpoint, broker.server.ports, broker.logs.last_producer_id, broker.apply_image, asked)
    broker.start()
    while not stop.wait(_WATCH_S):
        if controller.is_gone.is_set():
            break
    controller.close()
    broker.close()
    return 0


def _be_broker(settings: dict[str, Any], all_settings: Sequence[dict[str, Any]]) -> NoReturn:
    """Run a broker in a forked process and exit."""
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        # The link of a broker only closes with its process if no other process has it open.
        for other in all_settings:
            if other is not settings:
                os.close(other["descriptor"])
        code = serve(settings)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(all_settings: Sequence[dict[str, Any]]) -> None:
    """Fork the brokers and wait until they have ended."""
    # Ctrl-C on a terminal, and the SIGTERM of a service manager, reach every process of the group. The cluster decides
    # when its brokers end, and removes their directories when this process has seen all of them end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Keeps memory shared between the brokers: the collector doesn't write to frozen objects.
    gc.freeze()
    children = set()
    for settings in all_settings:
        pid = os.fork()
        if pid == 0:
            _be_broker(settings, all_settings)
        children.add(pid)
    for settings in all_settings:
        os.close(settings["descriptor"])
    while children:
        children.discard(os.wait()[0])


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
