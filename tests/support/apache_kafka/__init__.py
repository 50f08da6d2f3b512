"""Apache Kafka as a test fixture: the reference that the tests compare with.

    with ApacheKafka(brokers=1) as kafka:
        produce_to(kafka.bootstrap_servers)
        lines = kafka.console_consumer("topic", max_messages=10)

Maven downloads the jars that `pom.xml` names, with the machine's own Maven settings; see `jars.py`. `releases` has
older releases: `ApacheKafka39`, `ApacheKafka21`, `ApacheKafka010`.
"""

from __future__ import annotations

from .cluster import ApacheKafka
from .jars import ApacheKafkaUnavailable, jars_folder

__all__ = ["ApacheKafka", "ApacheKafkaUnavailable", "jars_folder"]
