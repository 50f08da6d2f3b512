"""The choice between the two protocols of transactions."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ...network.client.api_versions import NodeApiVersions
from ...network.protocol.messages.records.produce import ProduceRequest
from ...network.protocol.messages.transactions.end_txn import EndTxnRequest

#: The cluster's feature that decides on the protocol, and its level from which it is TV2.
FEATURE = "transaction.version"
TV2_LEVEL = 2
#: The last versions of the classic protocol. The next ones belong to TV2.
LAST_CLASSIC_PRODUCE = 11
LAST_CLASSIC_END_TXN = 4
LAST_CLASSIC_OFFSET_COMMIT = 4


class Protocol(Enum):
    """The protocol of a transaction."""

    CLASSIC = "classic"
    TV2 = "TV2"


class ProtocolChoice:
    """The newest level of the feature that any broker has reported, and the protocol that follows from it.

    Brokers report the level when a connection begins. The level with the highest epoch is the newest (KIP-584).
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._level = 0
        self._coordinator_has_tv2 = False

    def note(self, versions: NodeApiVersions) -> None:
        """Note what a connected node has reported."""
        if versions.finalized_features_epoch >= self._epoch:
            self._epoch = versions.finalized_features_epoch
            self._level = versions.finalized_features.get(FEATURE, 0)

    def note_coordinator(self, versions: NodeApiVersions) -> None:
        """Note what the transaction coordinator supports."""
        end_txn = versions.range_of(EndTxnRequest.api_key)
        self._coordinator_has_tv2 = end_txn is not None and end_txn[1] > LAST_CLASSIC_END_TXN

    def choose(self, connected: Iterable[NodeApiVersions]) -> Protocol:
        """TV2 if the level is high enough, and the coordinator and every connected broker have the versions for it."""
        supports = self._coordinator_has_tv2
        for versions in connected:
            self.note(versions)
            produce = versions.range_of(ProduceRequest.api_key)
            supports = supports and produce is not None and produce[1] > LAST_CLASSIC_PRODUCE
        return Protocol.TV2 if supports and self._level >= TV2_LEVEL else Protocol.CLASSIC
