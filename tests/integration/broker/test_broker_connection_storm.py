"""Many clients that connect or re-authenticate at once do not stop the others. `make storm` has 500 of them."""

from __future__ import annotations

import pytest
from support.connection_storm import run_storm


@pytest.mark.timeout(300)
def test_traffic_goes_on_in_a_storm_of_connections() -> None:
    assert run_storm(connections=60).findings == []
