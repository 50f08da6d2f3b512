"""The table of errors: one class per code, retriable by base class, usable without a message and across processes."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

from headrace.network.protocol import errors, other_errors

ALL_CLASSES = [
    each
    for module in (errors, other_errors)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, errors.KafkaError) and (module is errors or each.__name__ in other_errors.__all__)
]


def test_every_code_of_kafka_has_its_class() -> None:
    table = errors.error_classes()
    assert list(table) == [-1, *range(1, 134)]
    assert all(cls.code == code and errors.error_for(code) is cls for code, cls in table.items())
    assert len(set(table.values())) == len(table)


def test_code_zero_is_no_error() -> None:
    assert errors.error_for(0) is None
    with pytest.raises(ValueError, match="success"):
        errors.make_error(0)


def test_an_unknown_code_is_kept() -> None:
    assert errors.error_for(999) is errors.UnrecognizedBrokerError
    error = errors.make_error(999, "what the broker said")
    assert isinstance(error, errors.UnknownError)
    assert (error.code, str(error)) == (999, "what the broker said (error code 999)")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, str(again)) == (type(error), 999, str(error))
    assert errors.error_for(-1) is errors.UnknownError


def test_a_duplicate_code_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="error code 3 of Another already belongs to UnknownTopicOrPartitionError"):

        class Another(errors.BrokerResponseError, code=3):
            """Nothing."""

    assert errors.error_for(3) is errors.UnknownTopicOrPartitionError


def test_a_subclass_without_a_code_is_a_family() -> None:
    class Family(errors.BrokerResponseError):
        """Nothing."""

    assert Family not in errors.error_classes().values()


def test_kafka_pythons_attributes_of_a_class_and_of_an_instance() -> None:
    cls = errors.UnknownTopicOrPartitionError
    assert (cls.errno, cls.message) == (3, "UNKNOWN_TOPIC_OR_PARTITION")
    assert (
        cls.description
        == "This broker does not have the topic or partition; it may not exist, or the broker may not know of it yet."
    )
    assert (cls.retriable, cls.invalid_metadata) == (True, True)
    error = errors.make_error(2, "what the broker said")
    assert (error.errno, error.message, error.retriable, error.invalid_metadata) == (2, "CORRUPT_MESSAGE", True, False)
    assert (errors.KafkaTimeoutError.retriable, errors.KafkaTimeoutError.invalid_metadata) == (True, False)
    assert (errors.AuthenticationError.errno, errors.AuthenticationError.message) == (None, None)
    assert errors.make_error(999).errno == 999


def test_kafkas_names_are_unique() -> None:
    names = [cls.message for cls in errors.error_classes().values()]
    assert len(set(names)) == len(names)
    assert all(name is not None and name.replace("_", "").isupper() for name in names)


@pytest.mark.parametrize("cls", ALL_CLASSES, ids=lambda cls: cls.__name__)
def test_a_traceback_shows_the_module_to_import_from(cls: type[errors.KafkaError]) -> None:
    assert (cls.__module__, cls.__qualname__) == ("headrace.producer.errors", cls.__name__)


def test_a_users_subclass_keeps_its_module() -> None:
    class Mine(errors.KafkaError):
        """Nothing."""

    assert Mine.__module__ == __name__


def test_pickles_name_that_module_and_older_ones_are_read() -> None:
    pickled = pickle.dumps(errors.NotEnoughReplicasError("two of three"), protocol=0)
    assert b"cheadrace.producer.errors\nNotEnoughReplicasError" in pickled
    older = pickled.replace(b"headrace.producer.errors", b"headrace.network.protocol.errors")
    for each in (pickled, older):
        again = pickle.loads(each)
        assert (type(again), again.args) == (errors.NotEnoughReplicasError, ("two of three",))


def test_a_pickle_is_read_by_a_process_that_has_imported_nothing() -> None:
    program = "import pickle, sys; error = pickle.load(sys.stdin.buffer); print(type(error), error.code, error)"
    pickled = pickle.dumps(errors.make_error(999, "new"))
    run = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
    assert run.stdout == b"<class 'headrace.producer.errors.UnrecognizedBrokerError'> 999 new (error code 999)\n"


@pytest.mark.parametrize("cls", ALL_CLASSES, ids=lambda cls: cls.__name__)
def test_each_says_something_and_pickles(cls: type[errors.KafkaError]) -> None:
    bare = cls()
    assert len(str(bare)) > 10
    assert "\n" not in str(bare)
    error = cls("on topic t")
    assert str(error).startswith("on topic t")
    for each in (bare, error):
        again = pickle.loads(pickle.dumps(each))
        assert (type(again), again.args, str(again)) == (cls, each.args, str(each))
    assert cls.__doc__ != cls.__mro__[1].__doc__


@pytest.mark.parametrize(
    ("code", "retriable", "refresh"),
    [
        (-1, False, False),
        (1, False, False),
        (2, True, False),
        (3, True, True),
        (5, True, True),
        (6, True, True),
        (7, True, False),
        (10, False, False),
        (13, True, True),
        (14, True, False),
        (16, True, False),
        (17, False, False),
        (19, True, False),
        (20, True, False),
        (29, False, False),
        (35, False, False),
        (45, False, False),
        (47, False, False),
        (51, True, False),
        (56, True, True),
        (59, False, False),
        (74, True, True),
        (75, True, False),
        (87, False, False),
        (89, True, False),
        (90, False, False),
        (100, True, True),
        (120, False, False),
    ],
)
def test_retriable_as_in_the_java_client(code: int, retriable: bool, refresh: bool) -> None:
    cls = errors.make_error(code).__class__
    assert issubclass(cls, errors.RetriableError) == cls.retriable == retriable
    assert issubclass(cls, errors.InvalidMetadataError) == refresh


def test_families() -> None:
    assert issubclass(errors.UnknownProducerIdError, errors.OutOfOrderSequenceNumberError)
    assert issubclass(errors.RequestTimedOutError, errors.KafkaTimeoutError)
    assert issubclass(errors.BufferExhaustedError, errors.KafkaTimeoutError)
    assert issubclass(errors.TopicAuthorizationFailedError, errors.AuthorizationError)
    assert issubclass(errors.SaslAuthenticationFailedError, errors.AuthenticationError)
    assert issubclass(errors.KafkaConfigurationError, ValueError)
    assert errors.RecordTooLargeError is errors.error_for(10)
    assert errors.NotLeaderOrFollowerError is errors.error_for(6)
