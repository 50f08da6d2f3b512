"""What Jupyter shows of clusters."""

from __future__ import annotations

from xml.etree import ElementTree

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.producer import KafkaProducer


def rows(html: str) -> list[list[str]]:
    root = ElementTree.fromstring(f"<div>{html}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_a_cluster_shows_its_brokers_and_topics() -> None:
    cluster = EmbeddedCluster(brokers=2, racks={1: "<a>"})
    assert ["brokers", "2"] in rows(cluster._repr_html_())
    with cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.create_topic("shown", num_partitions=2, replication_factor=2)
        for partition, count in ((0, 3), (1, 1)):
            for _ in range(count):
                producer.send("shown", b"v", partition=partition).get(10)
        html = cluster._repr_html_()
        first, second = cluster.bootstrap_servers.split(",")
        assert ["1", first, "<a>", "1"] in rows(html)
        assert ["2", second, "", "1"] in rows(html)
        assert ["shown", "2", "2", "0", "4", "2 values, at most 3"] in rows(html)
        assert html.count("<rect") == 2
        cluster.stop_broker(2)
        shown = rows(cluster._repr_html_())
        assert ["2", "not running", "", ""] in shown
        assert ["shown", "2", "2", "2", "4", "2 values, at most 3"] in shown
    assert "not started" in cluster._repr_html_()


def test_a_cluster_of_processes_shows_no_counts() -> None:
    with ProcessCluster(brokers=1) as cluster:
        cluster.create_topic("shown", num_partitions=1)
        assert ["shown", "1", "1", "0", "", ""] in rows(cluster._repr_html_())
