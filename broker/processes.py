"""A cluster whose brokers are processes of their own, which can be killed one by one."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..network.protocol.errors import IllegalStateError, KafkaConfigurationError, KafkaConnectionError
from ..network.selector import describe_address
from .config import BrokerConfig
from .controller import Controller
from .data_dirs import broker_directories, make_controller, make_directory
from .remote import BrokerLink
from .server import advertised_host

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0


class ProcessCluster:
    """The controller in this process, each broker in another. A broker that ends, however it does, is taken out of the
    cluster at once; `start_broker` brings it back.

    For one thread, except that brokers may end at any time.
    """

    def __init__(
        self,
        brokers: int,
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if brokers < 1:
            raise KafkaConfigurationError(f"a cluster has at least one broker, not {brokers}")
        self._config = dict(config or {})
        self._parsed_config = BrokerConfig.resolve_from(self._config, {}, {})
        self._broker_count = brokers
        self._given_directory = Path(data_dir) if data_dir is not None else None
        self._directory: Path | None = None
        self._host = host
        self._port = port
        self._ports: dict[int, int] = {}
        self._controller: Controller | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._links: dict[int, BrokerLink] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> ProcessCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start every broker; when this returns, clients are served. Raises KafkaConnectionError, KafkaStorageError."""
        self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="headrace-"))
        make_directory(self._directory)
        try:
            self._controller = make_controller(
                self._directory,
                self._broker_count,
                self._parsed_config,
                keeps_state=self._given_directory is not None,
            )
            self._start_brokers(list(range(1, self._broker_count + 1)))
        except BaseException:
            self.close()
            raise

    def _start_brokers(self, node_ids: list[int]) -> None:
        assert self._controller is not None
        assert self._directory is not None
        controller = self._controller
        directories = broker_directories(self._directory, self._broker_count)
        links = [self._launch(node_id, directories[node_id], controller) for node_id in node_ids]
        for link in links:
            link.is_registered.wait(_START_TIMEOUT_S)
            if link.endpoint is None:
                raise KafkaConnectionError(f"broker {link.node_id} didn't start; what it wrote to stderr says why")
            self._ports[link.node_id] = link.endpoint.port
        controller.skip_producer_ids(max(link.last_producer_id for link in links))
        controller.register_brokers([(link.endpoint, link.push) for link in links if link.endpoint is not None])
        for link in links:
            link.on_gone = self._broker_gone
            if link.is_gone.is_set():
                self._broker_gone(link)

    def _launch(self, node_id: int, directory: Path, controller: Controller) -> BrokerLink:
        ours, theirs = socket.socketpair()
        settings = {
            "node_id": node_id,
            "directory": str(directory),
            "config": self._config,
            "host": self._host,
            "port": self._ports.get(node_id) or (self._port + node_id - 1 if self._port else 0),
            "descriptor": theirs.fileno(),
        }
        with theirs:
            self._processes[node_id] = subprocess.Popen(
                [sys.executable, "-m", "headrace.broker.process", json.dumps(settings)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        link = BrokerLink(node_id, ours, controller)
        with self._lock:
            self._links[node_id] = link
        return link

    def _broker_gone(self, link: BrokerLink) -> None:
        with self._lock:
            is_current = self._links.get(link.node_id) is link
        if is_current and self._controller is not None:
            self._controller.unregister_broker(link.node_id)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers: HOST:PORT, separated by commas."""
        host = advertised_host(self._host)
        return ",".join(describe_address((host, self._ports[node_id])) for node_id in sorted(self._ports))

    @property
    def pids(self) -> dict[int, int]:
        """The process of each broker that runs, by the broker's id."""
        return {node_id: process.pid for node_id, process in self._processes.items() if process.poll() is None}

    @property
    def controller(self) -> Controller:
        if self._controller is None:
            raise IllegalStateError("the cluster is not started")
        return self._controller

    def kill_broker(self, node_id: int) -> None:
        """kill -9; returns when the process has ended and the others have taken over."""
        process = self._processes[node_id]
        process.kill()
        process.wait(_STOP_TIMEOUT_S)
        self._links[node_id].is_gone.wait(_STOP_TIMEOUT_S)

    def start_broker(self, node_id: int) -> None:
        """Start a broker again that has ended, on its old port and directory."""
        if self._processes[node_id].poll() is None:
            raise IllegalStateError(f"broker {node_id} is running already")
        self._start_brokers([node_id])

    def close(self) -> None:
        """Stop every broker cleanly and remove what is temporary. Any number of times."""
        processes, self._processes = self._processes, {}
        # They end together, so there is nothing to elect.
        with self._lock:
            self._links.clear()
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._controller = None
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None
