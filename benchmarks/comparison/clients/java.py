"""Kafka's own producer: ``kafka-producer-perf-test``, from the jars that the tests use."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile

from ..measurement import Measurement, max_rss_kib
from ..shapes import Mode, Shape, ValueKind
from .client import DELIVERY_S, Client, Unavailable

PROGRAM = "org.apache.kafka.tools.ProducerPerformance"
#: the last line of its output
SUMMARY = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th"
)


class Java(Client):
    """`org.apache.kafka.clients.producer.KafkaProducer` in the JVM of Kafka's program.

    The program has no keys, headers and threads, and calls a callback of its own for every record. Its time begins
    after the construction of the producer, without a warm-up. CPU and memory are those of the whole JVM. Latencies are
    whole milliseconds.
    """

    modes = frozenset({Mode.THROUGHPUT, Mode.PACED})

    @classmethod
    def refusal(cls, shape: Shape) -> str | None:
        if shape.keyed or shape.headers or shape.threads > 1:
            return f"{PROGRAM} has no keys, headers and threads"
        return super().refusal(shape)

    def measure(self) -> Measurement:
        from ..apache_kafka import ApacheKafkaUnavailable, jars_folder, java_command

        try:
            java, jars = java_command(), jars_folder()
        except ApacheKafkaUnavailable as missing:
            raise Unavailable(str(missing)) from missing
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            output = os.path.join(folder, "output")
            command = [java, "-cp", os.path.join(jars, "*"), PROGRAM, *self.options(folder)]
            with open(output, "w+b") as written:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            with open(output, encoding="utf-8", errors="replace") as said:
                text = said.read()
        found = list(SUMMARY.finditer(text))
        if process.returncode != 0 or not found:
            raise RuntimeError(f"{PROGRAM} ended with exit code {process.returncode}: {text[-2000:]}")
        summary = found[-1]
        latency_ms = {"p50": float(summary["p50"]), "p99": float(summary["p99"]), "p99.9": float(summary["p999"])}
        return Measurement(
            records=self.workload.records,
            written=int(summary["records"]),
            seconds=self.workload.records / float(summary["rate"]),
            cpu_s=used.ru_utime + used.ru_stime,
            peak_kib=max_rss_kib(used),
            latency_ms=latency_ms if self.shape.is_latency else None,
        )

    def options(self, folder: str) -> list[str]:
        """The program's options; `folder` takes the file of JSON values."""
        options = ["--bootstrap-server", self.bootstrap_servers, "--topic", self.topic]
        options += ["--num-records", str(self.workload.records)]
        options += ["--throughput", str(self.shape.rate or -1)]
        if self.shape.value_kind is ValueKind.JSON:
            payload = os.path.join(folder, "values")
            with open(payload, "wb") as file:
                file.write(b"\n".join(self.workload.values))
            options += ["--payload-file", payload]
        else:
            options += ["--record-size", str(self.shape.value_bytes)]
        config = {"delivery.timeout.ms": DELIVERY_S * 1000, **self.shape.config}
        return [*options, "--command-property", *(f"{key}={value}" for key, value in config.items())]
