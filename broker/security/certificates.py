"""A throw-away certificate authority for secured embedded clusters, with the `trustme` package."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError

_HOSTS = ("localhost", "127.0.0.1", "::1")


class ThrowAwayAuthority:
    """A certificate authority in memory, which writes its certificates and those it issues as PEM files.

    Nobody but the clients that are given its `ca_path` trusts it. Its own key is never written. Any thread.
    """

    def __init__(self, directory: Path) -> None:
        """Create the authority and write `ca.pem` to the directory, which must exist.

        Raises KafkaConfigurationError without the trustme package.
        """
        try:
            import trustme  # noqa: PLC0415 - an extra
        except ImportError:
            raise KafkaConfigurationError(
                "throw-away certificates need the trustme package: pip install 'headrace[testing]'"
            ) from None
        self._directory = directory
        self._authority: Any = trustme.CA(organization_name="Headrace throw-away authority")
        #: The PEM file that clients need as ssl.truststore.location.
        self.ca_path = directory / "ca.pem"
        self.ca_path.write_bytes(self._authority.cert_pem.bytes())

    def issue_server(
        self,
        hosts: Sequence[str] = _HOSTS,
        *,
        name: str = "server",
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> Path:
        """Write a PEM file with a server's certificate chain and key, for ssl.keystore.location.

        `hosts` are the names and addresses it is valid for, `name` names the file, and `not_before` and `not_after`
        bound its validity.
        """
        return self._write(
            name,
            self._authority.issue_cert(
                *dict.fromkeys(hosts), common_name=hosts[0], not_before=not_before, not_after=not_after
            ),
        )

    def issue_client(self, common_name: str, *, name: str | None = None) -> Path:
        """Write a PEM file with a client's certificate chain and key, for ssl.keystore.location.

        Its subject has `common_name`, which becomes the client's principal; `name` names the file.
        """
        issued = self._authority.issue_cert(f"{common_name}@clients.invalid", common_name=common_name)
        return self._write(common_name if name is None else name, issued)

    def _write(self, name: str, issued: Any) -> Path:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - trustme is made of it

        # Java reads private keys in PKCS8 format only
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._directory / f"{name}.pem"
        # some clients take the certificate and the key as two files
        for target, content in (
            (path, key + b"".join(each.bytes() for each in issued.cert_chain_pems)),
            (self.key_path(path), key),
        ):
            target.touch(mode=0o600)
            target.write_bytes(content)
        return path

    @staticmethod
    def key_path(path: Path) -> Path:
        """The file with only the private key of an issued file."""
        return path.with_suffix(".key.pem")
