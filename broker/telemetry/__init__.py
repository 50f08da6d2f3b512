"""Client telemetry (KIP-714): which metrics clients are asked for, and what they pushed.

The subscriptions are configuration resources of the cluster (`client_metrics_config`), in the image. A `Collector` per
broker answers the two requests and keeps what it received, so that tests can read it.

Source: Kafka's ClientMetricsManager. Difference: Kafka passes the metrics on to a receiver plugin, and serves telemetry
only with one. This broker serves it while the cluster has a subscription.
"""
