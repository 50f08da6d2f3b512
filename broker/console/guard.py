"""Which requests may come in. Anything else on this machine, including a page of another site in the same browser, can
reach the port."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

TOKEN_HEADER = "X-Headrace-Token"


def refusal(
    target: str, header: Callable[[str], str | None], *, port: int, token: str, is_page: bool
) -> tuple[int, str] | None:
    """The status and the reason for which a request is rejected; None if it may come in.

    The `Host` must be this machine's own (a site whose name is rebound to 127.0.0.1 sends its own name), and an
    `Origin` must be this page's. The token comes in a header, which no other origin can send; for the page itself it is
    in the address.
    """
    hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
    host = header("Host")
    if host not in hosts:
        return 421, f"the Host is {host!r}, but this is {hosts[0]}"
    origin = header("Origin")
    if origin is not None and origin != f"http://{host}":
        return 403, f"the request comes from {origin!r}, which is another origin"
    if not is_page and header("Sec-Fetch-Site") not in (None, "same-origin"):
        return 403, "the request comes from another site"
    if is_page:
        given = parse_qs(urlsplit(target).query, max_num_fields=20).get("token", [""])[0]
    else:
        given = header(TOKEN_HEADER) or ""
    if not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
        return 403, "the token is missing or wrong; open the address that the program printed"
    return None
