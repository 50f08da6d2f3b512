"""What waits for a viewer is bounded, and the latest state always arrives."""

from __future__ import annotations

import json

from headrace.broker.console.feed import REQUESTS_KEPT, Viewer


def events(viewer: Viewer) -> dict[str, object]:
    found = viewer.next_events(0.0)
    assert found is not None
    return {name: json.loads(data) for name, data in found}


def test_a_slow_viewer_gets_only_the_latest_section():
    viewer = Viewer()
    for number in range(1_000):
        viewer.offer({"topics": json.dumps(number), "groups": "1"}, [], 0)
    assert events(viewer) == {"topics": 999, "groups": 1}
    assert events(viewer) == {}


def test_a_section_that_has_not_changed_is_not_sent_again():
    viewer = Viewer()
    viewer.offer({"topics": "1"}, [], 0)
    assert events(viewer) == {"topics": 1}
    viewer.offer({"topics": "1"}, [], 0)
    assert events(viewer) == {}
    viewer.offer({"topics": "2"}, [], 0)
    viewer.offer({"topics": "1"}, [], 0)
    assert events(viewer) == {}


def test_of_many_requests_the_newest_stay_and_the_others_are_counted():
    viewer = Viewer()
    rows = [{"number": number} for number in range(REQUESTS_KEPT + 5)]
    viewer.offer({}, rows, 2)
    viewer.offer({}, [{"number": -1}], 0)
    found = events(viewer)["requests"]
    assert found == {"rows": [*rows[6:], {"number": -1}], "skipped": 8}
    viewer.offer({}, [{"number": 1}], 0)
    assert events(viewer) == {"requests": {"rows": [{"number": 1}], "skipped": 0}}


def test_a_closed_viewer_ends():
    viewer = Viewer()
    viewer.offer({"topics": "1"}, [], 0)
    viewer.close()
    assert viewer.next_events(0.0) is None
