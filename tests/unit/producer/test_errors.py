"""The module from which programs import errors: the whole table, and kafka-python's remaining names."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

from headrace.network.protocol import errors as table
from headrace.network.protocol import other_errors
from headrace.producer import errors
from headrace.producer.errors import KafkaTimeoutError, NodeNotReadyError, NoError, for_code, kafka_errors


def test_it_has_the_classes_of_the_table() -> None:
    assert KafkaTimeoutError is table.KafkaTimeoutError
    names = [name for name, cls in inspect.getmembers(table, inspect.isclass) if issubclass(cls, table.KafkaError)]
    names += other_errors.__all__
    assert len(names) > 150
    assert [name for name in names if getattr(errors, name) is not getattr(table, name)] == []


def test_other_names_of_what_is_raised_here() -> None:
    assert errors.NoBrokersAvailable is errors.NoBrokersAvailableError
    assert errors.CorruptRecordException is errors.CorruptRecordError
    assert errors.KafkaProtocolError is errors.ProtocolError
    assert errors.IncompatibleBrokerVersion is errors.UnsupportedVersionError


def test_what_is_never_raised_here_can_be_caught_all_the_same() -> None:
    with pytest.raises(errors.RetriableError, match="Never raised here"):
        raise NodeNotReadyError
    again = pickle.loads(pickle.dumps(NodeNotReadyError("node 1")))
    assert (type(again), str(again)) == (NodeNotReadyError, "node 1")
    assert errors.StaleMetadata.invalid_metadata


def test_classes_by_code() -> None:
    assert for_code(0) is kafka_errors[0] is NoError
    assert (NoError.code, NoError.errno, NoError.message) == (0, 0, "NO_ERROR")
    assert for_code(3) is kafka_errors[3] is errors.UnknownTopicOrPartitionError
    assert for_code(999) is errors.UnrecognizedBrokerError


def test_a_subclass_elsewhere_keeps_the_code() -> None:
    """Brokers raise their own kinds of an error, and answer with its code."""

    class TooOld(errors.InvalidTimestampError):
        pass

    assert (TooOld.code, TooOld.errno, TooOld.message) == (32, 32, "INVALID_TIMESTAMP")
    assert for_code(32) is errors.InvalidTimestampError


def test_a_program_may_import_every_error_at_once() -> None:
    program = (
        "import sys\n"
        "from headrace.producer.errors import GroupIdNotFoundError, KafkaTimeoutError, kafka_errors\n"
        "from headrace.producer.errors import *\n"
        "from headrace.producer import errors\n"
        "assert {KafkaTimeoutError, GroupIdNotFoundError, NotControllerError, Cancelled} and len(kafka_errors) == 135\n"
        "assert {'GroupIdNotFoundError', 'KafkaTimeoutError', 'kafka_errors'} <= {*dir(errors), *errors.__all__}\n"
        "try:\n    errors.NoSuchError\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "NoSuchError" in run.stdout
