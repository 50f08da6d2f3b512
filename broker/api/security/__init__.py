"""APIs of authentication."""

from . import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
    sasl_authenticate,
    sasl_handshake,
)

__all__ = [
    "alter_user_scram_credentials",
    "describe_user_scram_credentials",
    "sasl_authenticate",
    "sasl_handshake",
]
