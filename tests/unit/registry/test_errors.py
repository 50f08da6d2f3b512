"""The errors of the schema registry."""

from __future__ import annotations

import copy
import pickle

import pytest

from headrace.network.protocol.errors import SerializationError
from headrace.registry import errors


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.startswith(("Schema", "Not", "In"))])
def test_errors_survive_pickling_and_copying(name: str):
    error_class = getattr(errors, name)
    error = error_class("no", http_status_code=404, error_code=40401, error_message="m", subject="s", schema="x")
    assert isinstance(error, SerializationError)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), vars(again)) == (error_class, "no", vars(error))


def test_only_an_outage_is_worth_a_retry():
    assert errors.SchemaRegistryUnavailableError.retriable
    assert not errors.SchemaNotFoundError.retriable
