from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from headrace.producer.config import LEFT_OUT, ProducerConfig

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("kip_table")


def test_each_proposal_has_one_row(table: ModuleType) -> None:
    numbers = [kip.number for listed in table.KIPS.values() for kip in listed]
    assert len(numbers) == len(set(numbers)) > 50
    page = table.kips("{source}")
    assert re.findall(r"^\| KIP-(\d+) \| [^|]+ \| (?:yes|no|not applicable) \| [^|]+ \|$", page, re.MULTILINE) == [
        str(number) for number in numbers
    ]


@pytest.mark.parametrize(
    ("evidence", "state", "where"),
    [
        ("key linger.ms", "yes", "`linger.ms`"),
        ("key transaction.two.phase.commit.enable", "no", LEFT_OUT["transaction.two.phase.commit.enable"]),
        ("default linger.ms 5", "yes", "`linger.ms=5`"),
        ("default linger.ms 0", "no", "the default of `linger.ms` is 5"),
        ("api PRODUCE 13", "yes", "Produce up to version 13"),
        ("api PRODUCE 99", "no", "Produce up to version 13, not 99"),
        ("method send", "yes", "`KafkaProducer.send`"),
        ("method consume", "no", ""),
        ("file docs/kip_table.py", "yes", "`docs/kip_table.py`"),
        ("none", "not applicable", ""),
    ],
)
def test_the_state_comes_from_the_code(table: ModuleType, evidence: str, state: str, where: str) -> None:
    assert table.Kip(1, "", evidence).state() == (state, where)


@pytest.mark.parametrize("evidence", ["file docs/nothing.py", "hope"])
def test_evidence_that_does_not_exist_is_an_error(table: ModuleType, evidence: str) -> None:
    with pytest.raises(ValueError, match="KIP-1 "):
        table.Kip(1, "", evidence).state()


def test_what_the_configuration_says_of_a_proposal_is_on_the_page(table: ModuleType) -> None:
    """A key that is left out because of a KIP has a row for it."""
    numbers = {kip.number for listed in table.KIPS.values() for kip in listed}
    named = {int(number) for reason in LEFT_OUT.values() for number in re.findall(r"KIP-(\d+)", reason)}
    named |= {int(number) for entry in ProducerConfig.entries for number in re.findall(r"KIP-(\d+)", entry.doc)}
    assert named <= numbers
