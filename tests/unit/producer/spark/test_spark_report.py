from __future__ import annotations

from xml.etree import ElementTree

from headrace.producer.columns.rows_future import OffsetRange
from headrace.producer.spark.report import WriteReport


def test_a_notebook_shows_totals_and_offsets() -> None:
    offsets = {("<b>t</b>", 1): OffsetRange(10, 19, 10), ("<b>t</b>", 0): OffsetRange(0, 4, 5)}
    report = WriteReport(rows=15, bytes=12_345, tasks=2, elapsed_ms=500.0, offsets=offsets, slowest_task=(3, 250.0))
    html = report._repr_html_()
    root = ElementTree.fromstring(f"<div>{html}</div>")
    shown = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert ["bytes", "12,345"] in shown
    assert ["rows/s", "30"] in shown
    assert ["slowest task", "Spark partition 3, 250 ms"] in shown
    assert ["records per partition", "2 values, at most 10"] in shown
    assert shown[-2:] == [["<b>t</b>", "0", "5", "0", "4"], ["<b>t</b>", "1", "10", "10", "19"]]


def test_a_notebook_shows_an_empty_report() -> None:
    assert ElementTree.fromstring(f"<div>{WriteReport()._repr_html_()}</div>") is not None
