"""Apache Kafka's broker keys that `BrokerConfig` does not have: accepted with a warning, or with one value only.

A key is accepted if the broker behaves as it would with the key, or no worse: thread counts, buffer sizes, and the
tuning of components that this broker does without. A key that would have to change what clients see, and can't, is
rejected.
"""

from __future__ import annotations

_CONTROLLER = "the controller runs in the cluster's process, not in a quorum"
_TWO_PHASES = "no release of Kafka supports transactions in two phases"
_CLASSIC = "groups use the classic protocol"
_THREADS = "the broker chooses the number of its threads"
_CLEANER = "compaction runs on one thread and uses the memory that the keys of a log need"
_REMOTE = "there is no remote storage"
_METRICS = "the broker has no metrics"
_QUOTAS = "there are no quotas"
_UNTHROTTLED = "replication is never throttled"
_MECHANISM = "no mechanism of this broker needs such a setting"
_TOKENS = "delegation tokens are not supported"
_SHARE = "share groups are not supported"

WITHOUT_EFFECT: dict[str, str] = {
    # Controller
    "process.roles": _CONTROLLER,
    "controller.*": _CONTROLLER,
    "metadata.log.max.*": _CONTROLLER,
    "metadata.log.segment.*": _CONTROLLER,
    "metadata.max.*": _CONTROLLER,
    "broker.heartbeat.interval.ms": "the controller detects the loss of a broker without heartbeats",
    "broker.session.timeout.ms": "the controller detects the loss of a broker without heartbeats",
    "initial.broker.registration.timeout.ms": "a cluster registers its brokers as it starts them",
    "controlled.shutdown.enable": "a clean stop always transfers leadership first",
    "early.start.listeners": "a listener opens when its broker is ready to serve",
    # Threads and buffers
    "background.threads": _THREADS,
    "num.io.threads": "the network threads handle short requests, and one other thread the rest",
    "num.replica.fetchers": "a broker has one fetcher per leader",
    "num.replica.alter.log.dirs.threads": _THREADS,
    "num.recovery.threads.per.data.dir": "logs are loaded one after another",
    "group.coordinator.threads": _THREADS,
    "group.coordinator.background.threads": _THREADS,
    "group.coordinator.append.linger.ms": "a group's records are written without delay",
    "group.coordinator.cached.buffer.max.bytes": "a group's records are written without delay",
    "offsets.load.buffer.size": "the offsets topic is read one batch at a time",
    "offsets.topic.compression.codec": "committed offsets are written uncompressed, and read in any codec",
    "log.cleaner.threads": _CLEANER,
    "log.cleaner.dedupe.buffer.size": _CLEANER,
    "log.cleaner.io.*": _CLEANER,
    "log.dir.failure.timeout.ms": "creating a replica that failed is retried every second",
    "delete.records.purgatory.purge.interval.requests": "DeleteRecords requests are answered without waiting",
    "share.fetch.purgatory.purge.interval.requests": _SHARE,
    # Connections between brokers
    "request.timeout.ms": "requests between brokers use replica.socket.timeout.ms",
    "socket.connection.setup.timeout.max.ms": "connecting to a broker uses replica.socket.timeout.ms",
    # Components that this broker does not have
    "group.consumer.*": _CLASSIC,
    "group.streams.*": _CLASSIC,
    "group.coordinator.rebalance.protocols": _CLASSIC,
    "group.share.*": _SHARE,
    "share.coordinator.*": _SHARE,
    "transaction.state.log.load.buffer.size": "the transaction log is read one batch at a time",
    "remote.*": _REMOTE,
    "log.local.retention.bytes": _REMOTE,
    "log.local.retention.ms": _REMOTE,
    "follower.fetch.last.tiered.offset.enable": _REMOTE,
    "metrics.*": _METRICS,
    "metric.reporters": _METRICS,
    "kafka.metrics.*": _METRICS,
    "quota.window.*": _QUOTAS,
    "controller.quota.window.*": _QUOTAS,
    "replication.quota.window.*": _UNTHROTTLED,
    "leader.replication.throttled.rate": _UNTHROTTLED,
    "follower.replication.throttled.rate": _UNTHROTTLED,
    "alter.log.dirs.replication.quota.window.*": "a move pauses after each step to keep its rate",
    "log.preallocate": "files grow as they are written",
    # Security
    "ssl.allow.dn.changes": "certificates may change in any way",
    "ssl.allow.san.changes": "certificates may change in any way",
    "sasl.*": _MECHANISM,
    "delegation.token.expiry.*": _TOKENS,
    "delegation.token.max.lifetime.ms": _TOKENS,
}

FIXED: dict[str, tuple[str, str]] = {
    "alter.config.policy.class.name": ("", "Java classes can't be loaded"),
    "create.topic.policy.class.name": ("", "Java classes can't be loaded"),
    "client.quota.callback.class": ("", "Java classes can't be loaded"),
    "config.providers": ("", "values are taken literally"),
    "cordoned.log.dirs": ("", "new replicas may be placed in every directory"),
    "delegation.token.secret.key": ("", "delegation tokens are not supported"),
    "max.connection.creation.rate": ("2147483647", "the rate of new connections is not limited"),
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Java classes can't be loaded",
    ),
    "remote.log.storage.system.enable": ("false", _REMOTE),
    "replica.selector.class": ("", "consumers fetch from leaders"),
    "security.providers": ("", "Java classes can't be loaded"),
    "transaction.two.phase.commit.enable": ("false", _TWO_PHASES),
}

LEFT_OUT: dict[str, str] = {
    "zookeeper.*": "there is no ZooKeeper",
}
