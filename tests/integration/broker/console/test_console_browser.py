"""The console's page in a real browser: look, click, type, keyboard only, narrow, and nothing in a record runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import BROWSER, OPTIONS
from support.waiting import wait_until

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.producer import KafkaProducer

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine; install the package chromium"),
    pytest.mark.timeout(300),
    # one browser for all of them
    pytest.mark.xdist_group("console-browser"),
]

PATIENCE_MS = 60_000
PATIENCE_S = 60
VIEWS = ("overview", "topics", "topics/t", "groups", "producers", "requests", "faults")
HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, console=True) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        yield producer


#: Playwright's own filter also finds the text of hidden elements, such as what a table says when it is empty.
VISIBLE_TEXT = """([selector, text]) => [...document.querySelectorAll(selector)].some(
  (each) => each.checkVisibility() && each.innerText.toLowerCase().replace(/\\s+/g, " ").includes(text))"""


class Opened:
    """A page of the console, and what the browser complained about."""

    def __init__(self, browser: Any, cluster: EmbeddedCluster, width: int = 1280) -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 850})
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script error {error}"))
        self.page.on("console", self._check_message)
        self.page.on("request", self._check_request)
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self._address = cluster.console_url.partition("?")[0]
        self.page.goto(cluster.console_url)
        self.page.wait_for_selector("#connection.live")

    def _check_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _check_request(self, asked: Any) -> None:
        if not asked.url.startswith((self._address, "data:,")):
            self.complaints.append(f"asks for {asked.url}")

    def view(self, name: str) -> None:
        self.page.evaluate(f"location.hash = '#/{name}'")

    def wait(self, expression: str) -> None:
        """Until a script's expression is true. Playwright's own wait needs `eval`, which the page's policy forbids."""
        wait_until(lambda: self.page.evaluate(expression))

    def see(self, selector: str, text: str) -> None:
        """Until a visible element has a text that is visible in it."""
        wait_until(lambda: self.page.evaluate(VISIBLE_TEXT, [selector, text.lower()]))


@pytest.fixture
def opened(browser, cluster) -> Iterator[Opened]:
    opened = Opened(browser, cluster)
    yield opened
    opened.page.close()
    assert opened.complaints == []


def test_an_empty_cluster_says_what_to_do(opened):
    opened.see("#brokers", "running")
    for view, words in (
        ("topics", "New topic"),
        ("groups", "group.id"),
        ("producers", "idempotent by default"),
        ("faults", "No faults are set"),
        ("requests", "appear here as clients send them"),
    ):
        opened.view(view)
        opened.see("main", words)


def test_make_a_topic_produce_a_record_and_read_it(opened, cluster):
    page = opened.page
    page.click("nav >> text=Topics")
    page.click("text=New topic…")
    page.fill("#topic-form [name=name]", "orders")
    page.fill("#topic-form [name=partitions]", "2")
    page.fill("#topic-form [name=replication_factor]", "2")
    page.click("#topic-form button[type=submit]")
    opened.see("#topic-name", "orders")
    opened.see("#records", "no records yet")
    page.click("#produce-box summary")
    page.select_option("#produce [name=partition]", "1")
    page.fill("#produce [name=key]", "customer-1")
    page.select_option("#produce [name=value_as]", "json")
    page.fill("#produce [name=value]", '{"item": "lamp", "price": 1.0}')
    page.fill("#produce [name=headers]", "trace: abc\n")
    page.click("#produce button[type=submit]")
    opened.see("#toasts", "Produced to partition 1 at offset 0.")
    (record,) = cluster.records("orders", 1)
    assert (record.key, json.loads(record.value), record.headers) == (
        b"customer-1",
        {"item": "lamp", "price": 1.0},
        (("trace", b"abc"),),
    )
    opened.see("#records td", "customer-1")
    page.click("#records button.link")
    opened.see("#record-title", "orders-1 at offset 0")
    assert '\n  "price": 1.0\n' in page.inner_text("#record .content:nth-of-type(2) pre")
    page.click("#record .content:nth-of-type(2) >> text=Hex")
    assert page.inner_text("#record .content:nth-of-type(2) pre").startswith("000000  7b 22 69 74 65 6d")
    assert "trace" in page.inner_text("#record-body")
    page.keyboard.press("Escape")
    assert not page.is_visible("#record")
    # what is wrong is said, and nothing is produced
    page.fill("#produce [name=value]", "{")
    page.click("#produce button[type=submit]")
    opened.see("#toasts .failed", "the value is not JSON")
    assert len(cluster.records("orders", 1)) == 1
    opened.complaints = [each for each in opened.complaints if "status of 400" not in each]


def test_what_a_record_has_is_shown_as_text_and_never_runs(opened, cluster, producer):
    cluster.create_topic("t")
    content = HOSTILE.encode()
    producer.send("t", key=content, value=content, headers=[(HOSTILE, content)])
    producer.send("t", value=json.dumps({HOSTILE: HOSTILE}).encode())
    producer.send("t", value=b"\x00\xff" * 40)
    producer.flush()
    # names of clients come from outside, too
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id=HOSTILE) as other:
        other.send("t", value=b"x").result(PATIENCE_S)
    opened.view("topics/t")
    opened.wait("document.querySelectorAll('#records tbody tr').length === 4")
    assert HOSTILE in opened.page.inner_text("#records")
    opened.page.click("#records tr:last-child button.link")
    opened.see("#record-title", "t-0 at offset 0")
    assert opened.page.inner_text("#record-body").count("<script>") == 4
    opened.page.keyboard.press("Escape")
    opened.view("requests")
    opened.see("#requests", HOSTILE)
    markup = "document.querySelectorAll('main img, dialog img, main script, dialog script').length"
    assert opened.page.evaluate(markup) == 0
    assert "run" not in opened.page.title()
    # even the page's own script could not make markup of it
    refused = "(() => { try { document.body.innerHTML = '<p>x</p>'; return false } catch (error) { return true } })()"
    assert opened.page.evaluate(refused) is True
    opened.complaints = [each for each in opened.complaints if "TrustedHTML" not in each]


def test_filters_and_the_live_list(opened, cluster, producer):
    cluster.create_topic("t")
    for number in range(30):
        producer.send("t", key=b"k%d" % number, value=b"v%d" % number)
    producer.flush()
    page = opened.page
    opened.view("topics/t")
    opened.see("#records td", "v29")
    producer.send("t", key=b"late", value=b"follows by itself").result(PATIENCE_S)
    opened.see("#records td", "follows by itself")
    page.fill("#search [name=key]", "k2")
    page.click("#search button[type=submit]")
    opened.wait("document.querySelectorAll('#records tbody tr').length === 11")
    page.fill("#search [name=key]", "")
    page.select_option("#search [name=count]", "20")
    page.select_option("#search [name=from]", "offset")
    page.fill("#search [name=offset]", "5")
    page.click("#search button[type=submit]")
    opened.wait("document.querySelector('#records tbody button').textContent === '5'")
    page.click("#more")
    opened.wait("document.querySelector('#records tbody button').textContent === '25'")
    page.fill("#search [name=key]", "nobody")
    page.click("#search button[type=submit]")
    opened.see("#records", "No key contains “nobody”.")
    opened.view("topics")
    page.fill("#topic-filter", "zzz")
    opened.see("#topics", "No topic has “zzz” in its name.")


def test_a_fault_acts_on_a_real_producer(opened, cluster, producer):
    cluster.create_topic("t")
    page = opened.page
    page.click("nav >> text=Faults")
    page.wait_for_selector("#fault [name=error] option", state="attached")
    page.select_option("#fault [name=api]", "PRODUCE")
    page.select_option("#fault [name=error]", "NOT_ENOUGH_REPLICAS")
    page.fill("#fault [name=times]", "2")
    page.click("#fault button[type=submit]")
    opened.see("#faults td", "fails with NOT_ENOUGH_REPLICAS")
    assert producer.send("t", value=b"x").result(PATIENCE_S).offset == 0
    opened.see("#faults td", "used up")
    assert [fault.hits for fault in cluster.faults] == [2]
    page.click("#faults >> text=Remove")
    opened.see("#faults", "No faults are set")
    assert cluster.faults == []
    # the form shows only what its choice needs
    assert page.is_visible("#fault [name=error]")
    page.select_option("#fault [name=kind]", "delay")
    assert (page.is_visible("#fault [name=error]"), page.is_visible("#fault [name=ms]")) == (False, True)
    page.select_option("#fault [name=often]", "always")
    assert not page.is_visible("#fault [name=times]")
    page.click("#fault button[type=submit]")
    opened.see("#faults td", "until removed")


def test_kill_and_start_a_broker(opened, cluster, producer):
    cluster.create_topic("t", replication_factor=2)
    leader = cluster.leader_of("t", 0)
    page = opened.page
    page.click(f"[aria-label='Kill broker {leader}']")
    opened.see("#brokers", "stopped")
    assert leader not in cluster.running
    assert producer.send("t", value=b"x").result(PATIENCE_S).offset == 0
    page.click(f"[aria-label='Start broker {leader}']")
    opened.wait("!document.querySelector('#brokers').textContent.includes('stopped')")
    assert cluster.running == [1, 2]
    opened.see("#toasts", f"Broker {leader} runs again.")


def test_with_the_keyboard_only(opened, cluster):
    page = opened.page

    def tab_to(condition: str) -> None:
        """Press Tab until the element with the focus fits, which is visible there."""
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate(f"(each => {condition})(document.activeElement)"):
                # the style is on the element that has the focus
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                return
        raise AssertionError(f"no element fits {condition}")

    page.keyboard.press("2")
    opened.wait("location.hash === '#/topics'")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "topic-filter"
    tab_to("each.id === 'new-topic'")
    page.keyboard.press("Enter")
    page.keyboard.type("t1")
    page.keyboard.press("Enter")
    opened.see("#topic-name", "t1")
    tab_to("each.tagName === 'SUMMARY'")
    page.keyboard.press("Enter")
    tab_to("each.name === 'key' && each.form.id === 'produce'")
    page.keyboard.type("k")
    tab_to("each.name === 'value'")
    page.keyboard.type("v")
    tab_to("each.textContent === 'Produce'")
    page.keyboard.press("Enter")
    wait_until(lambda: cluster.records("t1", 0))
    opened.see("#records td", "k")
    tab_to("each.matches('#records button')")
    page.keyboard.press("Enter")
    opened.see("#record-title", "t1-0 at offset 0")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('#records button')")
    page.keyboard.press("1")
    opened.wait("location.hash === '#/overview'")
    tab_to("each.textContent === 'Kill'")
    # updates come meanwhile, and the focus stays
    cluster.create_topic("another")
    opened.wait("document.querySelector('[data-count=topics]').textContent === '2'")
    assert page.evaluate("document.activeElement.textContent") == "Kill"
    page.keyboard.press("Enter")
    opened.wait("document.activeElement.textContent === 'Start'")
    page.keyboard.press("Enter")
    wait_until(lambda: cluster.running == [1, 2])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_nothing_is_wider_than_the_window(browser, cluster, producer, width, scheme):
    name = "a.topic-with_a.name-as-long-as-it-may-be." * 6
    cluster.create_topic(name[:249], configs={"retention.ms": "1000000"})
    cluster.create_topic("t", num_partitions=3, replication_factor=2)
    producer.send("t", key=b"k" * 5_000, value=b"v" * 5_000, headers=[("h" * 500, b"h" * 500)])
    producer.send("t", value=bytes(range(256)) * 4)
    producer.flush()
    cluster.inject(ApiKey.HEARTBEAT, Fault(close=True, topic=None), times=None)
    opened = Opened(browser, cluster, width)
    opened.page.emulate_media(color_scheme=scheme)
    wide = "document.scrollingElement.scrollWidth - window.innerWidth"
    for view in (*VIEWS, f"topics/{name[:249]}"):
        opened.view(view)
        opened.page.wait_for_timeout(100)
        if view == "topics/t":
            opened.page.click("#produce-box summary")
            opened.page.wait_for_selector("#records button.link")
            for button in opened.page.query_selector_all("#records button.link"):
                button.click()
                opened.page.wait_for_selector("#record[open]")
                assert opened.page.evaluate("document.querySelector('#record').scrollWidth") <= width
                opened.page.keyboard.press("Escape")
        assert opened.page.evaluate(wide) <= 0, view
    opened.page.close()
    assert opened.complaints == []


def test_the_page_notices_the_end_and_comes_back(browser):
    cluster = EmbeddedCluster(console=True)
    cluster.start()
    opened = Opened(browser, cluster)
    cluster.close()
    opened.page.wait_for_selector("#connection.lost")
    opened.page.close()


def test_the_page_without_its_token_says_where_the_address_is(browser, cluster):
    page = browser.new_page()
    page.goto(cluster.console_url.partition("?")[0])
    assert "cluster.console_url" in page.inner_text("body")
    page.close()


def test_a_page_of_another_origin_gets_nothing(browser, cluster):
    """Another local server's page, which knows even the token."""
    import http.server  # noqa: PLC0415
    import threading  # noqa: PLC0415

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>other</title>")

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        address, _, token = cluster.console_url.partition("?token=")
        script = """async ([address, token]) => {
          const results = [];
          for (const [path, options] of [
            ["api/choices", { headers: { "X-Headrace-Token": token } }],
            ["api/brokers", { method: "POST", mode: "no-cors", body: '{"node_id": 1, "action": "kill"}' }],
            ["?token=" + token, {}],
          ]) {
            try { results.push((await fetch(address + path, options)).type); } catch (error) { results.push("failed"); }
          }
          const frame = document.createElement("iframe");
          frame.src = address + "?token=" + token;
          document.body.append(frame);
          await new Promise((done) => { frame.onload = done; });
          results.push(frame.contentWindow.length);
          return results;
        }"""
        read, acted, opened, _ = page.evaluate(script, [address, token])
        assert (read, acted, opened) == ("failed", "failed", "failed")
        assert cluster.running == [1, 2]
        # the frame has the browser's own error page
        assert not any(frame.url.startswith(address) and "Overview" in frame.content() for frame in page.frames)
        page.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
