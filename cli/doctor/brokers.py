"""The step of the brokers: can each be reached at the address that it advertises?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...network.addresses import Address
from ...network.protocol.messages.topics.metadata import MetadataResponse
from ...network.text import counted
from ..parallel import run_all
from .connecting import Connector
from .findings import Findings, Status, Step, Stopwatch

#: More brokers than these are reported in one line, if they can be reached.
_SHOWN = 12


def check_brokers(
    connector: Connector, metadata: MetadataResponse, reached: Sequence[Address], findings: Findings
) -> None:
    """Connect to every broker of the cluster. `reached`: the addresses that have been connected to already."""
    brokers = {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}
    cluster = metadata.cluster_id or "without an id"
    if not brokers:
        findings.fail(
            Step.BROKERS,
            cluster,
            "the metadata names no broker",
            "the cluster may be starting; look into the log of its controller",
        )
        return
    findings.ok(
        Step.BROKERS,
        cluster,
        f"the cluster has {counted(len(brokers), 'broker')}: {_listed(brokers)}",
        brokers={str(node_id): str(address) for node_id, address in brokers.items()},
    )
    for address, count in Counter(brokers.values()).items():
        if count > 1:
            same = [node_id for node_id, each in brokers.items() if each == address]
            findings.fail(
                Step.BROKERS,
                str(address),
                f"brokers {', '.join(map(str, same))} advertise the same address",
                "give each broker advertised.listeners of its own: their records would go to one of them",
            )
    for finding in run_all(
        [partial(_check_broker, connector, node_id, address, reached) for node_id, address in brokers.items()]
    ):
        findings.add(**finding)


def _listed(brokers: dict[int, Address]) -> str:
    shown = [f"{node_id} at {address}" for node_id, address in list(brokers.items())[:_SHOWN]]
    return ", ".join(shown) + (", ..." if len(brokers) > _SHOWN else "")


def _check_broker(connector: Connector, node_id: int, address: Address, reached: Sequence[Address]) -> dict[str, Any]:
    """The finding about one broker, as the arguments of `Findings.add`."""
    target = f"broker {node_id} at {address}"
    if address in reached:
        return {"step": Step.BROKERS, "status": Status.OK, "target": target, "text": "it is reached, see above"}
    steps = Findings()
    with Stopwatch() as watch:
        connected = connector.connect(address, steps)
    if connected is not None:
        connected[0].close()
        text = f"it is reached at the address that it advertises, in {watch.ms:g} ms"
        return {"step": Step.BROKERS, "status": Status.OK, "target": target, "text": text, "elapsed_ms": watch.ms}
    failed = steps.of(Status.FAILED)[-1]
    advice = _advice(failed.step, address, node_id, reached) or failed.advice
    return {
        "step": Step.BROKERS,
        "status": Status.FAILED,
        "target": target,
        "text": f"it advertises an address that can't be used from here: {failed.step.label}: {failed.text}",
        "advice": advice,
        "failed_step": failed.step.label,
    }


def _advice(failed: Step, address: Address, node_id: int, reached: Sequence[Address]) -> str:
    if failed not in (Step.NAME, Step.TCP, Step.API_VERSIONS, Step.TLS):
        return ""
    if address.is_loopback and not any(each.is_loopback for each in reached):
        return (
            f"broker {node_id} sends every client to its own machine; set its advertised.listeners to a name that "
            "clients can reach"
        )
    if failed is Step.TLS:
        return f"have the certificate issued for {address.host} too, or change advertised.listeners of broker {node_id}"
    return (
        f"records for partitions led by broker {node_id} can't be sent; set its advertised.listeners to an address "
        "that this machine can resolve and reach"
    )
