"""The users of a cluster, as every broker knows them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...network.security.scram import ScramCredential, ScramMechanism

ScramKey = tuple[str, ScramMechanism]


@dataclass(frozen=True, slots=True)
class Users:
    """Immutable. `passwords` are of PLAIN and come from the cluster's `users`; they are never stored. `scram` is what
    AlterUserScramCredentials changes, and is stored with the cluster's topics."""

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    scram: Mapping[ScramKey, ScramCredential] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> frozenset[str]:
        """The names of all users."""
        return frozenset(self.passwords).union(name for name, _ in self.scram)

    def with_passwords(self, passwords: Mapping[str, str | None]) -> Users:
        """With these users for all mechanisms; None removes one."""
        plain, scram = dict(self.passwords), dict(self.scram)
        for name, password in passwords.items():
            plain.pop(name, None)
            for mechanism in ScramMechanism:
                scram.pop((name, mechanism), None)
            if password is not None:
                plain[name] = password
                for mechanism in ScramMechanism:
                    scram[name, mechanism] = ScramCredential.from_password(mechanism, password)
        return Users(plain, scram)

    def scram_of(self, name: str) -> dict[ScramMechanism, ScramCredential]:
        """The SCRAM credentials of a user, by mechanism."""
        return {each: self.scram[name, each] for each in ScramMechanism if (name, each) in self.scram}


def scram_to_json(scram: Mapping[ScramKey, ScramCredential]) -> list[list[Any]]:
    """One entry per credential."""
    return [
        [name, mechanism.label, each.iterations, *map(_text, (each.salt, each.stored_key, each.server_key))]
        for (name, mechanism), each in scram.items()
    ]


def scram_from_json(entries: list[list[Any]]) -> dict[ScramKey, ScramCredential]:
    """The reverse of `scram_to_json`. Raises ValueError for a mechanism that does not exist."""
    found: dict[ScramKey, ScramCredential] = {}
    for name, label, iterations, salt, stored_key, server_key in entries:
        mechanism = ScramMechanism.labelled(label)
        if mechanism is None:
            raise ValueError(f"there is no mechanism {label!r}")
        found[name, mechanism] = ScramCredential(
            base64.b64decode(salt), iterations, base64.b64decode(stored_key), base64.b64decode(server_key)
        )
    return found


def _text(secret: bytes) -> str:
    return base64.b64encode(secret).decode()
