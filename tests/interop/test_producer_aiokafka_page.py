"""The programs of docs/from-aiokafka.md write the same records, and the first one runs with the import changed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.pages import BLOCKS, program_of

from headrace.broker import EmbeddedCluster


def written_by(program: str, cluster: EmbeddedCluster) -> list[Any]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 0\n999\n"
    return [(each.key, json.loads(each.value or b""), each.headers) for each in cluster.records("numbers", 0)]


def test_the_programs_write_the_same_records() -> None:
    pages = [block for block in BLOCKS if block.page.endswith("from-aiokafka.md") and block.language == "python"]
    theirs, ours = [block for block in pages if "numbers" in block.text]
    written = []
    for block, changed in ((theirs, False), (ours, False), (theirs, True)):
        with EmbeddedCluster() as cluster:
            program = program_of(block, cluster.bootstrap_servers)
            if changed:
                before = "from aiokafka import AIOKafkaProducer\n"
                assert before in program
                program = program.replace(
                    before, "from headrace.producer import AsyncKafkaProducer as AIOKafkaProducer\n"
                )
                program = program.replace("from aiokafka.errors", "from headrace.producer.errors")
                assert "aiokafka." not in program
            written.append(written_by(program, cluster))
    assert written[0] == written[1] == written[2]
    assert len(written[0]) == 1000
