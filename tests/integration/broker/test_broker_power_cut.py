"""Clusters whose machines lose power at moments drawn from a seed."""

from __future__ import annotations

import os

import pytest
from support.broker_storm import KINDS, run_storm
from support.producer_storm import parse_seeds

#: `make storm` runs more seeds.
STORM_SEEDS = parse_seeds(os.environ.get("HEADRACE_STORM_SEEDS", "0:1"))


@pytest.mark.parametrize("seed", STORM_SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_storms_of_power_cuts(kind: str, seed: int) -> None:
    result = run_storm(seed, kind)
    assert result.findings == [], "\n".join(result.losses)
