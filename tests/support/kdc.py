"""A KDC of MIT Kerberos for tests, started by k5test; tests are skipped, with the reason, where it can't run."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from support.apache_kafka.cluster import free_ports

_PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/lib/krb5"


def kerberos_realm(brokers: Sequence[str]) -> Iterator[Any]:
    """A k5test.K5Realm with the services `kafka/BROKER` in `keytab`, `alice/laptop` in `client_keytab`, and a ticket of
    `user` in the credential cache. Sets the environment of this process meanwhile.
    """
    for module, needs in (("gssapi", "pip install 'headrace[gssapi]'"), ("k5test", "pip install k5test")):
        pytest.importorskip(module, reason=f"{module} is not installed: {needs}")
    if shutil.which("krb5kdc", path=_PATH) is None:
        pytest.skip("MIT Kerberos has no krb5kdc here (Debian: krb5-kdc)")
    before = dict(os.environ)
    os.environ["PATH"] = _PATH
    settings = {
        "libdefaults": {"dns_canonicalize_hostname": "false", "rdns": "false", "dns_lookup_realm": "false"},
        "domain_realm": {".example": "$realm"},
    }
    realm = importlib.import_module("k5test").K5Realm(
        krb5_conf=settings, portbase=free_ports(1)[0], create_host=False, start_kdc=False, get_creds=False
    )
    try:
        for principals, keytab in (
            ([f"kafka/{broker}" for broker in brokers], realm.keytab),
            (["alice/laptop"], realm.client_keytab),
        ):
            for principal in principals:
                realm.addprinc(f"{principal}@{realm.realm}")
                realm.extract_keytab(f"{principal}@{realm.realm}", keytab)
        # only now, so that the KDC never reads its database while that is written
        realm.start_kdc()
        realm.kinit(realm.user_princ, realm.password("user"))
        os.environ.update(realm.env)
        yield realm
    finally:
        realm.stop()
        os.environ.clear()
        os.environ.update(before)
