"""A schema registry for tests: Confluent's REST API in this process.

    from headrace.registry.embedded import EmbeddedRegistry

    with EmbeddedRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})

`server` has the HTTP server, `api` the routes, `store` the state, and `avro_format`, `json_format` and
`protobuf_format` what they check.
"""

from .server import EmbeddedRegistry

__all__ = ["EmbeddedRegistry"]
