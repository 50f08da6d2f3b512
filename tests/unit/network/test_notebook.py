from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headrace.network.notebook import MAX_ROWS, Bars, table


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{html}</div>")


def cells(html: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in parsed(html).iter("tr")]


def test_a_table_has_a_title_a_header_and_aligned_numbers() -> None:
    html = table("Topics", [("greetings", 12345, 0.5, True)], ("name", "records", "ratio", "open"))
    assert cells(html) == [["name", "records", "ratio", "open"], ["greetings", "12,345", "0.5", "True"]]
    assert "".join(next(parsed(html).iter("caption")).itertext()) == "Topics"
    aligned = [("right" in (cell.get("style") or "")) for cell in parsed(html).iter("td")]
    assert aligned == [False, True, True, False]


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b", "&lt;"])
def test_every_text_is_escaped(hostile: str) -> None:
    html = table(hostile, [(hostile, hostile)], (hostile, hostile))
    assert cells(html) == [[hostile, hostile], [hostile, hostile]]
    assert {element.tag for element in parsed(html).iter()} == {"div", "table", "caption", "tr", "th", "td"}


def test_many_rows_are_counted() -> None:
    shown = cells(table("t", ((number,) for number in range(MAX_ROWS + 7))))
    assert shown[-2:] == [[str(MAX_ROWS - 1)], ["and 7 more"]]
    assert len(shown) == MAX_ROWS + 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), ""),
        (float("inf"), "inf"),
        (2.0, "2"),
        (1234567.5, "1,234,568"),
        (0.123456, "0.1235"),
        (None, "None"),
    ],
)
def test_numbers_are_short(value: object, text: str) -> None:
    assert cells(table("t", [(value,)])) == [[text]]


@pytest.mark.parametrize("values", [[], [0, 0], [1], [1, 2, 4], [float("nan"), 1.0], [5.0] * 1000, [-1, 3]])
def test_bars_stay_within_the_drawing(values: list[float]) -> None:
    svg = next(parsed(table("t", [(Bars(values),)])).iter("svg"))
    heights = [float(bar.get("height", "nan")) for bar in svg.iter("rect")]
    assert len(heights) == (len(values) if len(values) < 60 else 59)
    assert all(0 <= height <= float(svg.get("height", "0")) for height in heights)


def test_bars_are_proportional() -> None:
    svg = parsed(Bars([1, 2, 4]).html())
    assert [float(bar.get("height", "nan")) for bar in svg.iter("rect")] == [5.0, 10.0, 20.0]
