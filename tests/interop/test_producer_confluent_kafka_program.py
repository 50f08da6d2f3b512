"""The two programs of docs/from-confluent-kafka.md write the same records."""

from __future__ import annotations

import subprocess
import sys

from support.pages import BLOCKS, program_of

from headrace.broker import EmbeddedCluster


def test_both_programs_write_the_same_records() -> None:
    blocks = [
        block for block in BLOCKS if block.page.endswith("from-confluent-kafka.md") and block.language == "python"
    ]
    written = []
    for block in blocks[:2]:
        with EmbeddedCluster() as cluster:
            program = program_of(block, cluster.bootstrap_servers)
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
            )
            assert done.stdout.count("numbers-0 at offset ") == 1000
            records = cluster.records("numbers", 0)
            written.append([(record.key, record.value) for record in records])
    assert len(written) == 2
    assert written[0] == written[1]
    assert len(written[0]) == 1000
