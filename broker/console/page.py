"""The page in one file: `page.html` with `page.css` and `page.js` in it, and the policy that allows nothing else."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files
from typing import NamedTuple


class Page(NamedTuple):
    """The page, and its Content-Security-Policy."""

    content: bytes
    policy: str


@functools.cache
def page() -> Page:
    """The page. Only its own script and style run, by their hashes. It connects to its own address only. No text can
    become markup (`require-trusted-types-for`), and no other page can embed it."""
    html, style, script = (
        files(__package__ or __name__).joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", "page.js")
    )
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    whole = html.replace("/* page.css */", style).replace("/* page.js */", script)
    return Page(whole.encode(), policy)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


#: In place of the page, for a request without the token.
NO_TOKEN = b"""<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Headrace console</title>
<p>This address has no token, or that of another run. Open the whole address that the program printed, or that
<code>cluster.console_url</code> has.</p></html>"""
