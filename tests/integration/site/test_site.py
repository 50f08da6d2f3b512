"""The documentation site: it builds without a dead link, and its pages work in a real browser, wide and narrow."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import BROWSER, OPTIONS
from support.pages import ROOT

FIRST_ERROR_STATUS = 400
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


def pages(site: Path) -> list[str]:
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")


def test_every_page_of_docs_is_on_the_site_and_in_the_navigation(site):
    expected = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert expected <= set(pages(site))
    start = (site / "index.html").read_text(encoding="utf-8")
    assert [name for name in expected if f'href="{name}"' not in start] == []


def test_the_reference_has_the_public_classes_with_their_arguments(site):
    reference = (site / "api.html").read_text(encoding="utf-8")
    for name in ("KafkaProducer", "RecordFuture", "ProducerRecord", "EmbeddedCluster", "KafkaSink"):
        assert f">{name}<" in reference, name
    assert "max.block.ms" in reference


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine; install the package chromium")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_pages_work_in_a_browser(site, address, width):
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    troubles: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=OPTIONS)
        page = browser.new_page(viewport={"width": width, "height": 900})

        def check_request(asked: Any) -> None:
            if not asked.url.startswith(address):
                troubles.append(f"{page.url} asks for {asked.url}")

        def check_response(answer: Any) -> None:
            if answer.status >= FIRST_ERROR_STATUS:
                troubles.append(f"{page.url}: {answer.url} has status {answer.status}")

        page.on("pageerror", lambda error: troubles.append(f"{page.url}: script error {error}"))
        page.on("request", check_request)
        page.on("response", check_response)
        for name in pages(site):
            page.goto(f"{address}/{name}")
            wide = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
            if wide > 0:
                troubles.append(f"{name}: {wide} pixels wider than the window of {width}")
            missing = page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
            troubles += [f"{name}: the image {source} is missing" for source in missing]
        page.goto(f"{address}/index.html")
        if width == WIDTHS["desktop"]:
            page.click("input.md-search__input")
            page.keyboard.type("linger")
            page.wait_for_selector("li.md-search-result__item")
        browser.close()
    assert troubles == []
