"""One broker in a process of its own: `python -m headrace.broker.process`, started by `ProcessCluster` only."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from ..network.clock import SYSTEM_CLOCK
from .config import BrokerConfig
from .control import Control
from .node import Broker
from .remote import RemoteController
from .replica.connection import OpenLinks

_WATCH_S = 0.2


def main(settings: dict[str, Any]) -> None:
    """Serve until SIGTERM, or until the controller is gone."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(threadName)s %(name)s: %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Ctrl-C on a terminal reaches every process of the group; the parent decides when its brokers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    controller = RemoteController(socket.socket(fileno=settings["descriptor"]))
    broker = Broker(
        settings["node_id"],
        Path(settings["directory"]),
        config=BrokerConfig.resolve_from(settings["config"], {}, {}),
        clock=SYSTEM_CLOCK,
        controller=controller,
        control=Control(),
        links=OpenLinks(),
        host=settings["host"],
        port=settings["port"],
    )
    controller.register(broker.endpoint, broker.logs.last_producer_id, broker.apply_image)
    broker.start()
    while not stop.wait(_WATCH_S):
        if controller.is_gone.is_set():
            break
    controller.close()
    broker.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
