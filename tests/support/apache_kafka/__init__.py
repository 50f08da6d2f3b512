"""Apache Kafka itself as a test fixture: the broker that everything here is held against.

    with ApacheKafka(brokers=1) as kafka:
        produce_to(kafka.bootstrap_servers)
        lines = kafka.console_consumer("topic", max_messages=10)

The jars come from Maven Central by `pom.xml` and the machine's own Maven settings; see `jars.py`. `releases` has older
ones: `ApacheKafka39`, `ApacheKafka21`, `ApacheKafka010`.
"""

from __future__ import annotations

from .cluster import ApacheKafka
from .jars import ApacheKafkaUnavailable, jars_folder

__all__ = ["ApacheKafka", "ApacheKafkaUnavailable", "jars_folder"]
