from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("drawing")


def test_every_drawing_lies_within_its_frame_and_is_on_a_page(drawing: ModuleType) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in [*DOCS.glob("*.md"), DOCS.parent / "DESIGN.md"])
    for name, each in drawing.FILES.items():
        root = ElementTree.fromstring(each.svg())
        _, _, width, height = map(float, (root.get("viewBox") or "").split())
        for box in root.iter(f"{SVG}rect"):
            x, y = float(box.get("x", 0)), float(box.get("y", 0))
            assert 0 <= x <= x + float(box.get("width", "nan")) <= width
            assert 0 <= y <= y + float(box.get("height", "nan")) <= height
        assert name in pages


def test_no_box_covers_another(drawing: ModuleType) -> None:
    for each in drawing.FILES.values():
        centers = [box.center for box in each.boxes.values()]
        for at, (x, y) in enumerate(centers):
            for other_x, other_y in centers[at + 1 :]:
                assert abs(x - other_x) >= 160 or abs(y - other_y) >= 66


def test_text_is_escaped_and_arrows_need_boxes(drawing: ModuleType) -> None:
    svg = drawing.Drawing("<a & b>", {"a": drawing.Box(0, 0, "<x>")}, ()).svg()
    assert "".join(ElementTree.fromstring(svg).itertext()).count("<x>") == 1
    with pytest.raises(KeyError):
        drawing.Drawing("t", {"a": drawing.Box(0, 0, "x")}, (("a", "b", ""),)).svg()
