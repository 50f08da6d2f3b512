"""The transaction coordinator (KIP-98, KIP-360, KIP-890), as Kafka's `TransactionCoordinator`.

**Who coordinates.** A transactional id belongs to a partition of `__transaction_state` by its hash. The leader of that
partition is the coordinator, and the leader epoch is the coordinator epoch. Its state is in that partition (`store`),
one record per change, so another broker can continue at any point.

**A transaction** (`states` has the table) is EMPTY until a partition is added, then ONGOING until the producer, a
successor or the timeout ends it. Ending has two steps, each a record: PREPARE_COMMIT or PREPARE_ABORT is the decision,
which is never taken back; then the leaders of all partitions append markers (`markers`), which is retried until each
has its marker, and COMPLETE_COMMIT or COMPLETE_ABORT is written. A coordinator that finds a PREPARE state in its log
continues with the markers.

**One change at a time.** `Transaction.pending` is set under the transaction's lock before a record is appended, and
cleared when the record is replicated. Requests in between get CONCURRENT_TRANSACTIONS. Nothing is appended and nobody
is answered under that lock. From PREPARE on, the COMPLETE state is pending.

**Partitions enter a transaction** by AddPartitionsToTxn from the client (the classic protocol), or from the leader that
receives the first batch (`transaction.version` 2). In the classic protocol that leader verifies the batch with the
coordinator. Both are `enrolment`. Requests between brokers go through sockets even to the same broker, on threads of
their own (`peers`), so that a test's faults reach them.

Threads: any thread may call the coordinator; answers come from the thread that completes the append.
"""
