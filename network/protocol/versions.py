"""Ranges of versions of a message, in the notation of Kafka's schema files."""

from typing import NamedTuple

#: The end of a range without one.
NEWEST = 0x7FFF


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    min: int
    max: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse Kafka's notation: "3", "3-13" or "3+"."""
        low, _, high = text.removesuffix("+").partition("-")
        return cls(int(low), NEWEST if text.endswith("+") else int(high or low))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max

    def __str__(self) -> str:
        return f"{self.min}-{self.max}" if self.max != NEWEST else f"{self.min}+"
