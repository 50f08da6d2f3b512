"""Values from a file."""

from __future__ import annotations

from pathlib import Path

from ...network.protocol.errors import KafkaConfigurationError


def values_of_file(path: Path, delimiter: str) -> list[bytes]:
    """The values that a file has between delimiters, which may be written as escapes such as \\n.

    Raises KafkaConfigurationError if the file can't be read or is empty.
    """
    separator = delimiter.encode().decode("unicode_escape").encode()
    try:
        content = path.read_bytes()
    except OSError as failed:
        raise KafkaConfigurationError(f"--payload-file {path}: {failed.strerror}") from failed
    if not separator or not content:
        raise KafkaConfigurationError(f"--payload-file {path} or its delimiter is empty; give values and a delimiter")
    return content.removesuffix(separator).split(separator)
