"""Apache Kafka's jars and brokers, as the tests find and start them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.apache_kafka import ApacheKafka, ApacheKafkaUnavailable, jars_folder
from support.apache_kafka.cluster import SERVER_JVM_OPTIONS
from support.apache_kafka.jars import java_command

__all__ = ["SERVER_JVM_OPTIONS", "ApacheKafka", "ApacheKafkaUnavailable", "jars_folder", "java_command"]
