"""The errors in responses, as the sender handles them."""

from __future__ import annotations

from ...network.client.request_cy import ClientResponse
from ...network.protocol import errors
from ...network.protocol.errors import KafkaError, make_error


def lost_response(response: ClientResponse) -> KafkaError:
    """The error of a produce request that failed as a whole: NetworkExceptionError if it may have been processed."""
    assert response.error is not None
    if not response.disconnected:
        return response.error
    error = errors.NetworkExceptionError(
        f"the connection to node {response.node_id} was closed before the response ({response.error})"
    )
    error.__cause__ = response.error
    return error


def producer_id_error(response: ClientResponse) -> KafkaError | None:
    """The error of a request for a producer id; None if there is none."""
    error = response.error
    if error is None:
        assert response.message is not None
        code = response.message.error_code
        if code == errors.ClusterAuthorizationFailedError.code:
            return errors.ClusterAuthorizationFailedError(
                "the brokers give this client no producer id, which idempotence needs: the client's principal needs an "
                "ACL that allows WRITE on any topic (with brokers before Kafka 2.8: IDEMPOTENT_WRITE on the cluster); "
                "or set enable.idempotence=false"
            )
        return make_error(code) if code else None
    if isinstance(error, errors.UnsupportedVersionError):
        return errors.UnsupportedVersionError(
            f"the broker does not support idempotent producers ({error}): set enable.idempotence=false for brokers "
            f"older than 0.11"
        )
    return error
