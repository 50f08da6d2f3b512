"""Subject name strategies: the subject under which the schema of a record's key or value is registered."""

from __future__ import annotations

from collections.abc import Callable

from ..network.protocol.errors import SerializationError
from .context import SerializationContext

#: Takes the context and the name of the record's type; None if the type has none.
SubjectNameStrategy = Callable[["SerializationContext | None", "str | None"], "str | None"]


def topic_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str:
    """``{topic}-key`` or ``{topic}-value``: one type per topic."""
    return f"{_needed(ctx).topic}-{_needed(ctx).field}"


def record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str:
    """``{name of the record's type}``: a type has the same schema in every topic."""
    return _named(record_name)


def topic_record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str:
    """``{topic}-{name of the record's type}``: several types per topic, each compatible with itself there."""
    return f"{_needed(ctx).topic}-{_named(record_name)}"


STRATEGIES: dict[str, SubjectNameStrategy] = {
    "TOPIC": topic_subject_name_strategy,
    "RECORD": record_subject_name_strategy,
    "TOPIC_RECORD": topic_record_subject_name_strategy,
}


def _needed(ctx: SerializationContext | None) -> SerializationContext:
    if ctx is None:
        raise SerializationError(
            "the subject name depends on the topic: call the serializer with a SerializationContext, or use the "
            "strategy RECORD"
        )
    return ctx


def _named(record_name: str | None) -> str:
    if not record_name:
        raise SerializationError(
            "the subject name depends on the name of the record's type, and the schema has none (an Avro union or "
            "primitive, or a JSON Schema without title); use the strategy TOPIC"
        )
    return record_name
