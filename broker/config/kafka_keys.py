"""Apache Kafka's broker keys that are no keys of `BrokerConfig`: accepted with a warning, or with one value only.

A key is accepted where whoever gives it finds the broker to behave as it would with it, or not worse: how many threads
there are, how large a buffer is, how a part is run that this broker does without. One that would have to change what
clients see, and can't, is refused.
"""

from __future__ import annotations

_CONTROLLER = "the controller belongs to the cluster and is no node of a quorum"
_TRANSACTIONS = "transactions are not supported yet"
_CLASSIC = "groups follow the classic protocol"
_THREADS = "how many threads there are is the broker's own affair"
_CLEANER = "compaction runs on one thread and takes the memory that the keys of a log need"
_REMOTE = "there is no remote storage"
_METRICS = "the broker keeps no metrics"
_QUOTAS = "there are no quotas"
_UNTHROTTLED = "replication is never throttled"
_TLS = "TLS is not supported yet, so no listener uses it"
_SASL = "SASL is not supported yet, so no listener uses it"
_SHARE = "share groups are not supported"

WITHOUT_EFFECT: dict[str, str] = {
    # the controller
    "process.roles": _CONTROLLER,
    "controller.*": _CONTROLLER,
    "metadata.log.max.*": _CONTROLLER,
    "metadata.log.segment.*": _CONTROLLER,
    "metadata.max.*": _CONTROLLER,
    "broker.heartbeat.interval.ms": "the controller notices the end of a broker by its link",
    "broker.session.timeout.ms": "the controller notices the end of a broker by its link",
    "initial.broker.registration.timeout.ms": "a cluster registers its brokers as it starts them",
    "controlled.shutdown.enable": "a clean stop always hands leadership over first",
    "early.start.listeners": "a listener opens when its broker serves",
    # threads and buffers
    "background.threads": _THREADS,
    "num.io.threads": "the network threads handle short requests themselves, one thread all others",
    "num.replica.fetchers": "a broker has one fetcher for each leader",
    "num.replica.alter.log.dirs.threads": _THREADS,
    "num.recovery.threads.per.data.dir": "logs are loaded one after the other",
    "group.coordinator.threads": _THREADS,
    "group.coordinator.background.threads": _THREADS,
    "group.coordinator.append.linger.ms": "a group's records are written at once",
    "group.coordinator.cached.buffer.max.bytes": "a group's records are written at once",
    "offsets.load.buffer.size": "the offsets topic is read batch by batch",
    "offsets.topic.compression.codec": "committed offsets are written uncompressed, and read in any codec",
    "log.cleaner.threads": _CLEANER,
    "log.cleaner.dedupe.buffer.size": _CLEANER,
    "log.cleaner.io.*": _CLEANER,
    "log.dir.failure.timeout.ms": "a replica that can't be made is tried again every second",
    "delete.records.purgatory.purge.interval.requests": "deleting records waits for nothing",
    "share.fetch.purgatory.purge.interval.requests": _SHARE,
    # connections between brokers
    "request.timeout.ms": "replica.socket.timeout.ms is for the requests between brokers",
    "socket.connection.setup.timeout.ms": "replica.socket.timeout.ms is for connecting, too",
    "socket.connection.setup.timeout.max.ms": "replica.socket.timeout.ms is for connecting, too",
    # parts that there are not
    "group.consumer.*": _CLASSIC,
    "group.streams.*": _CLASSIC,
    "group.coordinator.rebalance.protocols": _CLASSIC,
    "group.share.*": _SHARE,
    "share.coordinator.*": _SHARE,
    "add.partitions.to.txn.*": _TRANSACTIONS,
    "transaction.*": _TRANSACTIONS,
    "transactional.id.expiration.ms": _TRANSACTIONS,
    "remote.*": _REMOTE,
    "log.local.retention.bytes": _REMOTE,
    "log.local.retention.ms": _REMOTE,
    "follower.fetch.last.tiered.offset.enable": _REMOTE,
    "metrics.*": _METRICS,
    "metric.reporters": _METRICS,
    "kafka.metrics.*": _METRICS,
    "telemetry.max.bytes": _METRICS,
    "quota.window.*": _QUOTAS,
    "controller.quota.window.*": _QUOTAS,
    "replication.quota.window.*": _UNTHROTTLED,
    "leader.replication.throttled.rate": _UNTHROTTLED,
    "follower.replication.throttled.rate": _UNTHROTTLED,
    "alter.log.dirs.replication.quota.window.*": "a move waits after each step for as long as its rate asks for",
    "log.preallocate": "files grow as they are written",
    # security
    "ssl.*": _TLS,
    "sasl.*": _SASL,
    "connections.max.reauth.ms": _SASL,
    "connection.failed.authentication.delay.ms": _SASL,
    "delegation.token.expiry.*": _SASL,
    "delegation.token.max.lifetime.ms": _SASL,
}

FIXED: dict[str, tuple[str, str]] = {
    "authorizer.class.name": ("", "there is no authorizer, and everybody may do everything"),
    "alter.config.policy.class.name": ("", "a Java class can't be run here"),
    "create.topic.policy.class.name": ("", "a Java class can't be run here"),
    "client.quota.callback.class": ("", "a Java class can't be run here"),
    "config.providers": ("", "values are taken as they are"),
    "cordoned.log.dirs": ("", "new replicas may go to every directory"),
    "delegation.token.secret.key": ("", "delegation tokens need SASL, which is not supported yet"),
    "max.connection.creation.rate": ("2147483647", "connections are accepted at any rate"),
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "a Java class can't be run here",
    ),
    "remote.log.storage.system.enable": ("false", _REMOTE),
    "replica.selector.class": ("", "consumers fetch from leaders"),
    "security.providers": ("", "a Java class can't be run here"),
    "transaction.two.phase.commit.enable": ("false", _TRANSACTIONS),
}

LEFT_OUT: dict[str, str] = {
    "listener.name.*": "listeners are PLAINTEXT, which has no settings",
    "zookeeper.*": "there is no ZooKeeper",
}
