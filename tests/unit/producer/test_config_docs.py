from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headrace.producer.config import LEFT_OUT, ProducerConfig

GENERATE = Path(__file__).resolve().parents[3] / "docs" / "generate.py"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(GENERATE.parent)
    spec = importlib.util.spec_from_file_location("docs_generate", GENERATE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_key(generate: ModuleType) -> None:
    page = generate.configuration()
    for entry in ProducerConfig.entries:
        assert f"\n### `{entry.name}`\n" in page
    for name in LEFT_OUT:
        assert f"\n| `{name}` |" in page


def test_check_compares_and_writes_nothing(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    page = tmp_path / "docs" / "configuration.md"
    page.write_text(page.read_text().replace("`33554432`", "`33554433`"))
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    assert "-| [`buffer.memory`](#buffermemory) | `33554433` | high |" in capsys.readouterr().err


def test_the_pages_are_what_the_program_says(generate: ModuleType) -> None:
    assert generate.main(["--check"]) == 0


def test_the_page_of_metrics_has_every_metric_of_every_group(generate: ModuleType) -> None:
    page = generate.metrics()
    sections = page.split("\n## ")
    rows = {section.partition("\n")[0].strip("`"): section.count("\n| `") for section in sections if section[0] == "`"}
    assert rows == {"producer-metrics": 63, "app-info": 2, "producer-topic-metrics": 9, "producer-node-metrics": 12}
    assert "| `batch-size-avg` | Average size of a batch as sent, in bytes | `kafka_producer_batch_size_avg` |" in page
