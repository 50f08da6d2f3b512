"""What Jupyter shows of producers and metrics: complete, escaped, without secrets."""

from __future__ import annotations

import asyncio
from xml.etree import ElementTree

from headrace.broker import EmbeddedCluster
from headrace.producer import AsyncKafkaProducer, KafkaProducer


def rows(html: str) -> list[list[str]]:
    root = ElementTree.fromstring(f"<div>{html}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_a_producer_shows_its_state_metrics_and_configuration(kafka_cluster: EmbeddedCluster) -> None:
    server = kafka_cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=server, linger_ms=7, client_id="<b>shop</b>") as producer:
        for _ in range(3):
            producer.send("shown", b"v").get(10)
        shown = rows(producer._repr_html_())
        assert ["state", "open"] in shown
        assert ["brokers", f"{server} (id 1)"] in shown
        assert ["records sent", "3"] in shown
        assert ["linger.ms", "7", "keyword"] in shown
        assert ["client.id", "'<b>shop</b>'", "keyword"] in shown
        assert not any("delivery.timeout.ms" in row for row in shown)
    assert ["state", "closed"] in rows(producer._repr_html_())


def test_a_producer_without_a_broker_shows_that_it_knows_none() -> None:
    with KafkaProducer(bootstrap_servers="127.0.0.1:1") as producer:
        assert ["brokers", "not known yet"] in rows(producer._repr_html_())


def test_a_producer_shows_no_secret() -> None:
    with EmbeddedCluster(security="SASL_SSL", users={"alice": "wonder-land"}) as cluster:
        with KafkaProducer(cluster.client_config(user="alice")) as producer:
            producer.send("shown", b"v").get(10)
            html = producer._repr_html_()
        assert "wonder-land" not in html
        assert ["sasl.password", "******", "dict"] in rows(html)
        assert "wonder-land" not in cluster._repr_html_()


def test_an_asyncio_producer_shows_itself(kafka_cluster: EmbeddedCluster) -> None:
    async def shown() -> str:
        async with AsyncKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("shown", b"v")
            return producer._repr_html_()

    html = asyncio.run(shown())
    assert html.count("AsyncKafkaProducer") == 1
    assert ["records sent", "1"] in rows(html)


def test_metrics_show_every_value_by_group(kafka_cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send("shown", b"v").get(10)
        metrics = producer.metrics()
        shown = rows(metrics._repr_html_())
    assert len(shown) >= sum(min(len(values), 50) for values in metrics.values())
    assert ["record-send-total", "1"] in shown
    assert "producer-topic-metrics.shown" in metrics._repr_html_()
