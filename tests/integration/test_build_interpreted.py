"""HEADRACE_PURE=1: the interpreted modules do everything, and never look for Cython."""

from __future__ import annotations

import os
import subprocess
import sys

from headrace.broker import EmbeddedCluster

PROGRAM = """
import sys

from headrace.network import _build
from headrace.producer import KafkaProducer

with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    futures = [producer.send("words", b"value %d" % n, key=b"key %d" % n) for n in range(500)]
print(sorted(future.get(0).offset for future in futures) == list(range(500)))
print(_build.describe())
print("cython" in sys.modules or "Cython" in sys.modules)
"""


def test_the_interpreted_modules_send_and_need_no_cython():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("words", num_partitions=1)
        answer = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.bootstrap_servers],
            env={**os.environ, "HEADRACE_PURE": "1"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert answer.stdout.splitlines() == ["True", "interpreted (HEADRACE_PURE)", "False"], answer.stderr
        stored = [(record.key, record.value) for record in cluster.records("words", 0)]
    assert stored == [(b"key %d" % number, b"value %d" % number) for number in range(500)]
