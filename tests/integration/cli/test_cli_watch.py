"""`headrace watch` against programs that serve their metrics with prometheus_client."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import prometheus_client
import pytest
from support.processes import child

from headrace.broker import EmbeddedCluster
from headrace.cli import main
from headrace.producer import KafkaProducer
from headrace.producer.reporters import PrometheusReporter

HEADRACE = [sys.executable, "-m", "headrace.cli"]


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """A program that sends all the time; the address of its page."""
    registry = prometheus_client.CollectorRegistry()
    done = threading.Event()
    with (
        EmbeddedCluster() as cluster,
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="shop",
            metric_reporters=[PrometheusReporter(registry)],
        ) as producer,
    ):
        server, serving = prometheus_client.start_http_server(0, "127.0.0.1", registry)

        def send() -> None:
            while not done.wait(0.005):
                producer.send("orders", b"lamp")

        sending = threading.Thread(target=send)
        sending.start()
        yield f"127.0.0.1:{server.server_port}"
        done.set()
        sending.join()
        server.shutdown()
        server.server_close()
        serving.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts a web server with one answer; returns its address."""
    with contextlib.ExitStack() as stack:

        def start(body: bytes, status: int = 200) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_: object) -> None: ...

            server = HTTPServer(("127.0.0.1", 0), Handler)
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(lambda: (server.shutdown(), server.server_close(), thread.join()))
            return f"127.0.0.1:{server.server_port}"

        yield start


def test_a_pipe_gets_a_snapshot_per_interval(program):
    command = [*HEADRACE, "watch", program, "--interval", "0.2", "--count", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "\x1b" not in done.stdout + done.stderr
    assert len(re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, 1 producer$", done.stdout, re.MULTILINE)) == 3
    assert len(re.findall(r"^producer +topic +records/s", done.stdout, re.MULTILINE)) == 3
    rates = re.findall(r"^shop +orders +(\S+)", done.stdout, re.MULTILINE)
    assert len(rates) == 3
    assert all(float(rate.replace(",", "")) > 0 for rate in rates)
    assert re.search(r"^shop +1 +[\d.]", done.stdout, re.MULTILINE)


def read_terminal(command: list[str], until: bytes, end: Callable[[subprocess.Popen], object]) -> tuple[int, bytes]:
    """The exit code and everything that a command shows in a terminal, which is ended once it shows `until`."""
    terminal, inner = pty.openpty()
    shown = b""
    with child(command, stdout=inner, stderr=inner, env={**os.environ, "TERM": "xterm"}) as running:
        os.close(inner)
        is_ended = False
        # the terminal ends with an error when the last process that has it open ends
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 65536):
                shown += part
                if until in shown and not is_ended:
                    is_ended = True
                    end(running)
    os.close(terminal)
    return running.returncode, shown


def test_a_terminal_is_redrawn_until_ctrl_c_and_keeps_what_was_seen_last(program):
    command = [*HEADRACE, "watch", program, "--interval", "0.2"]
    code, shown = read_terminal(command, b"orders", lambda running: running.send_signal(signal.SIGINT))
    assert code == 130
    assert b"\x1b[?1049h" in shown
    screen, _, after = shown.partition(b"\x1b[?1049l")
    assert b"orders" in screen
    assert b"orders" in after
    assert b"Traceback" not in shown


def test_a_terminal_with_a_count_ends_by_itself(program):
    code, shown = read_terminal([*HEADRACE, "watch", program, "--count", "1"], b"\0", lambda running: None)
    assert code == 0
    assert b"\x1b[?1049h" not in shown
    assert b"orders" in shown


def test_ctrl_c_in_a_pipe(program):
    command = [*HEADRACE, "watch", program, "--interval", "3600"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert "1 producer" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, "")


def test_several_pages_of_which_one_is_away(program, capsys):
    assert main(["watch", program, "127.0.0.1:1", "--interval", "0.1", "--count", "1"]) == 0
    out = capsys.readouterr().out
    assert "http://127.0.0.1:1/metrics can't be read: [Errno 111] Connection refused" in out
    assert re.search(r"^shop ", out, re.MULTILINE)


def test_a_program_that_ends_and_comes_back(capsys):
    """The last reading says what is wrong, and the next one shows the program again."""
    page = prometheus_client.generate_latest(prometheus_client.CollectorRegistry())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = [b"HTTP/1.0 200 OK\r\n\r\n" + page, b"", b"HTTP/1.0 200 OK\r\n\r\n" + page]

        def answer() -> None:
            for each in answers:
                sock, _ = listener.accept()
                with sock:
                    sock.recv(10_000)
                    sock.sendall(each)

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["watch", f"127.0.0.1:{listener.getsockname()[1]}", "--interval", "0.1", "--count", "2"]) == 0
        thread.join()
    first, second, _ = capsys.readouterr().out.split("\n\n")
    assert "does not answer in HTTP" in first or "can't be read" in first
    assert 'create it with metric_reporters="prometheus"' in second


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"<html>{</html>", 200, "is not a page for Prometheus"),
        (b"", 404, "answers 404 Not Found; check the path and the port"),
    ],
)
def test_a_page_of_another_kind(serve, body, status, said, capsys):
    assert main(["watch", serve(body, status), "--count", "1"]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_server_that_is_not_http(capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(10_000)
                sock.sendall(b"\0\0\0\5hello\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["watch", f"127.0.0.1:{listener.getsockname()[1]}", "--count", "1"]) == 1
        thread.join()
    err = capsys.readouterr().err
    assert "does not answer in HTTP" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["127.0.0.1:1"], 1, "check that the program runs and serves its metrics there"),
        (["ftp://app"], 1, "is not the address of a page"),
    ],
)
def test_what_can_not_be_watched_is_one_line(arguments, code, said, capsys):
    assert main(["watch", *arguments]) == code
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("interval", ["soon", "0", "nan"])
def test_a_wrong_interval_is_rejected_with_the_usage(interval, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["watch", "--interval", interval])
    assert ended.value.code == 2
    assert "argument --interval" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(program, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    assert main(["watch", program]) == 1
    assert "pip install 'headrace[cli]'" in capsys.readouterr().err
