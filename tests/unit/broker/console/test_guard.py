"""Which requests the console takes."""

from __future__ import annotations

import pytest

from headrace.broker.console.guard import TOKEN_HEADER, refusal

PORT = 8642
TOKEN = "secret-ü"
HEADERS = {"Host": f"127.0.0.1:{PORT}", TOKEN_HEADER: TOKEN}


def answer(headers: dict[str, str], target: str = "/api/events", is_page: bool = False) -> int | None:
    found = refusal(target, headers.get, port=PORT, token=TOKEN, is_page=is_page)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"Host": f"localhost:{PORT}"},
        {"Origin": f"http://127.0.0.1:{PORT}", "Sec-Fetch-Site": "same-origin"},
        {"Host": f"localhost:{PORT}", "Origin": f"http://localhost:{PORT}"},
    ],
)
def test_the_page_itself_may_ask(more):
    assert answer({**HEADERS, **more}) is None


@pytest.mark.parametrize(
    ("more", "status"),
    [
        # a site whose name leads to 127.0.0.1
        ({"Host": f"evil.example:{PORT}"}, 421),
        ({"Host": f"127.0.0.1:{PORT}.evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": f"0.0.0.0:{PORT}"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"https://127.0.0.1:{PORT}"}, 403),
        # another program of this machine, and the same program under another name
        ({"Origin": "http://127.0.0.1:3000"}, 403),
        ({"Origin": f"http://localhost:{PORT}"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({TOKEN_HEADER: ""}, 403),
        ({TOKEN_HEADER: TOKEN + "x"}, 403),
        ({TOKEN_HEADER: "\udcff"}, 403),
    ],
)
def test_anyone_else_may_not(more, status):
    assert answer({**HEADERS, **more}) == status


def test_a_request_without_a_host_is_rejected():
    assert answer({TOKEN_HEADER: TOKEN}) == 421


def test_the_page_takes_the_token_from_its_address_and_the_rest_does_not():
    host = {"Host": f"127.0.0.1:{PORT}"}
    target = "/?token=secret-%C3%BC"
    assert answer(host, target, is_page=True) is None
    # it may be opened from a notebook, which is another site
    assert answer({**host, "Sec-Fetch-Site": "cross-site"}, target, is_page=True) is None
    assert answer(host, "/?token=other", is_page=True) == 403
    assert answer(host, "/", is_page=True) == 403
    assert answer(host, "/api/events?token=secret-%C3%BC") == 403
