"""The errors of the schema registry's client and of its serializers.

They are serialization errors, so that `send` raises them unchanged. Each names the subject and the schema that were
asked for, where there are some.
"""

from __future__ import annotations

from typing import Any

from ..network.protocol.errors import RetriableError, SerializationError


class SchemaRegistryError(SerializationError):
    """The schema registry did not do what it was asked for.

    `http_status_code` is None if there was no response. `error_code` is the registry's own (40401: the subject is
    unknown), -1 if the response had none, and `error_message` is the registry's text. `subject` and `schema` name what
    was asked for; None if the request had none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        http_status_code: int | None = None,
        error_code: int = -1,
        error_message: str = "",
        subject: str | None = None,
        schema: str | None = None,
    ) -> None:
        super().__init__(message)
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message
        self.subject = subject
        self.schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(error_class: type[SchemaRegistryError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = error_class(*args)
    error.__dict__.update(state)
    return error


class SchemaRegistryUnavailableError(SchemaRegistryError, RetriableError):
    """No schema registry answered, or each answered that it can't serve the request now."""


class SchemaRegistryAuthenticationError(SchemaRegistryError):
    """The schema registry rejected the credentials, or they don't permit the request."""


class SchemaNotFoundError(SchemaRegistryError):
    """The subject, the version or the schema is not registered."""


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema is not compatible with the earlier versions of its subject."""


class InvalidSchemaError(SchemaRegistryError):
    """The schema registry can't parse the schema, or does not accept it."""


class NotASchemaRegistryError(SchemaRegistryError):
    """The server at the configured address does not speak the schema registry's REST API."""
