"""Every error of this library, under the name a program imports it by: ``from headrace.producer.errors import ...``."""

from ..network.protocol.errors import *  # noqa: F403
