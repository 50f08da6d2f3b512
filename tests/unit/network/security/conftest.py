from __future__ import annotations

from pathlib import Path

import pytest
from support.tls import Credentials


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    """An authority with a server's and a client's certificate."""
    return Credentials(Path(tmp_path_factory.mktemp("tls")))
