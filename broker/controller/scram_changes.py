"""Changes of SCRAM credentials, checked in the order and with the errors of Kafka's ScramControlManager."""

from __future__ import annotations

from collections.abc import Sequence

from ...network.protocol.errors import BrokerResponseError, UnsupportedSaslMechanismError
from ...network.protocol.other_errors import DuplicateResourceError, ResourceNotFoundError, UnacceptableCredentialError
from ...network.security.scram import MAX_STORED_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from ..security.users import Users
from .controller_api import ScramDeletion, ScramUpsertion


def apply(
    users: Users, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> tuple[Users, dict[str, BrokerResponseError]]:
    """The users after the changes, the same object if nothing changes, and the errors by user."""
    errors: dict[str, BrokerResponseError] = {}
    accepted: dict[str, ScramDeletion | ScramUpsertion] = {}
    for change in (*deletions, *upsertions):
        if change.name in errors:
            continue
        if accepted.pop(change.name, None) is not None:
            errors[change.name] = DuplicateResourceError(
                "A user credential cannot be altered twice in the same request"
            )
            continue
        error = _problem(users, change)
        if error is None:
            accepted[change.name] = change
        else:
            errors[change.name] = error
    if not accepted:
        return users, errors
    scram = dict(users.scram)
    for change in accepted.values():
        mechanism = ScramMechanism.of_type(change.type_id)
        assert mechanism is not None
        if isinstance(change, ScramDeletion):
            del scram[change.name, mechanism]
        else:
            scram[change.name, mechanism] = ScramCredential.from_salted(
                mechanism, change.salted_password, change.salt, change.iterations
            )
    return Users(users.passwords, scram), errors


def _problem(users: Users, change: ScramDeletion | ScramUpsertion) -> BrokerResponseError | None:
    if not change.name:
        return UnacceptableCredentialError("Username must not be empty")
    mechanism = ScramMechanism.of_type(change.type_id)
    if mechanism is None:
        return UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        if (change.name, mechanism) not in users.scram:
            return ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        return None
    if change.iterations < MIN_ITERATIONS:
        return UnacceptableCredentialError("Too few iterations")
    if change.iterations > MAX_STORED_ITERATIONS:
        return UnacceptableCredentialError("Too many iterations")
    return None
