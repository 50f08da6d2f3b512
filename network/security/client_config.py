"""The keys by which a client secures its connections: TLS, SASL and tokens, in one table."""

from __future__ import annotations

from .sasl_config import SaslConfig
from .tls_config import SecurityConfig
from .token_config import TokenConfig


class ClientSecurityConfig(SecurityConfig, SaslConfig, TokenConfig):
    """What a producer and the commands inherit."""
