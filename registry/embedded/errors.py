"""The errors of the REST API: an HTTP status, the registry's error code and a message.

Source: io.confluent.kafka.schemaregistry.rest.exceptions.Errors.
"""

from __future__ import annotations


class RestError(Exception):
    """The response to a request that can't be served. `code` begins with the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])
        self.message = message


def subject_not_found(subject: str) -> RestError:
    return RestError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RestError:
    return RestError(40402, f"Version {version} not found.")


def schema_not_found(what: object = "") -> RestError:
    return RestError(40403, f"Schema {what} not found" if what else "Schema not found")


def invalid_schema(why: str) -> RestError:
    return RestError(42201, f"Invalid schema: {why}")
