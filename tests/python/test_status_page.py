"""The status page in a real browser: headless Chromium, driven through its WebDriver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

import sbp_native as sbp
from python.failing_syncs import FailingSyncs
from python.mounts import can_mount

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("browser")]

#: Where pictures for the documentation go, if they are wanted.
PICTURES = os.environ.get("SBP_PICTURES")
PATIENCE = 30.0


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Debian's chromium and chromium-driver; .ci/run installs them")
    options = Options()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as chrome:
        yield chrome


@pytest.fixture
def page(browser: webdriver.Chrome) -> Iterator[Page]:
    shown = Page(browser)
    shown.resize(1280, 900)
    shown.prefer("light")
    yield shown
    told = complaints(browser)
    browser.get("about:blank")
    assert not told, "the page has complained, or its policy has stopped something"


def complaints(browser: webdriver.Chrome) -> list[str]:
    """What the browser has complained about since it was last asked."""
    told = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [str(entry["message"]) for entry in told if entry["level"] == "SEVERE"]


class Page:
    """What a person does with the page."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser

    def open(self, address: str | None, path: str = "/") -> None:
        self.browser.get(f"http://{address}{path}")
        self.until(lambda: "serving" in self.text("state-text"))

    def leave(self) -> None:
        """Looks elsewhere: a page that asks a server which ends meanwhile complains."""
        self.browser.get("about:blank")

    def until(self, is_so: Callable[[], object]) -> None:
        """Waits for what the page shows a moment later."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(StaleElementReferenceException):
                if is_so():
                    return
            assert time.monotonic() < deadline, self.browser.find_element(By.TAG_NAME, "body").text
            time.sleep(0.05)

    def element(self, name: str) -> WebElement:
        return self.browser.find_element(By.ID, name)

    def text(self, name: str) -> str:
        return self.element(name).text

    def rows(self, table: str) -> list[str]:
        """What the rows show, all of one moment: the page puts others in their place while it is looked at."""
        shown = "return Array.from(document.querySelectorAll(arguments[0]), row => row.innerText)"
        return [" ".join(row.split()) for row in self.browser.execute_script(shown, f"#{table} tbody tr")]

    def figure(self, tile: str) -> float:
        """The number in a tile; 0 where it shows none yet."""
        shown = re.match(r"[\d.,]+", self.browser.find_element(By.CSS_SELECTOR, f"#tile-{tile} .value").text)
        return float(shown.group().replace(",", "")) if shown else 0.0

    def press(self, *keys: str) -> None:
        self.browser.switch_to.active_element.send_keys(*keys)

    def focused(self) -> str:
        return str(
            self.browser.execute_script("return document.activeElement.id || document.activeElement.textContent")
        )

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, name: str) -> None:
        if PICTURES:
            self.browser.save_screenshot(str(Path(PICTURES) / f"{name}.png"))


@pytest.fixture
def watched(page: Page) -> Iterator[sbp.Server]:
    with sbp.Server(durability="none", http="127.0.0.1:0") as server:
        yield server
        page.leave()


@contextlib.contextmanager
def appending(server: sbp.Server, name: str) -> Iterator[None]:
    """Appends to a stream, again and again, until the block ends."""
    stop = threading.Event()

    def append() -> None:
        with sbp.connect(server.address) as client:
            stream = client.stream(name)
            while not stop.is_set():
                stream.append([b"x" * 200] * 20)
                time.sleep(0.002)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_streams_are_searched_and_shown_by_keyboard(page: Page, watched: sbp.Server) -> None:
    with sbp.connect(watched.address) as client:
        for number in range(120):
            client.create_stream(f"sensors/{number:03}")
        orders = client.create_stream("shop/orders")
        for _ in range(3):
            orders.append(b"x" * 1_000)
    page.open(watched.http_address)
    page.until(lambda: len(page.rows("stream-table")) == 100)
    assert "100 of 121 shown" in page.text("stream-note")
    page.press("/")
    assert page.focused() == "search"
    page.press("ORDERS")
    page.until(lambda: len(page.rows("stream-table")) == 1)
    assert page.rows("stream-table")[0].startswith("shop/orders 0 \N{EN DASH} 3")
    page.press(Keys.TAB)  # to the table, which can be scrolled
    page.press(Keys.TAB, Keys.TAB, Keys.TAB)  # over what sorts it
    assert page.focused() == "shop/orders"
    page.press(Keys.ENTER)
    page.until(lambda: page.element("detail").is_displayed() and page.text("detail-title") == "shop/orders")
    (line,) = page.rows("range-table")
    assert line.startswith("0 open 0 \N{EN DASH} 3"), line
    assert watched.address in line
    page.until(lambda: page.focused() == "detail")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.element("detail").is_displayed())
    page.until(lambda: page.focused() == "shop/orders")
    page.element("search").send_keys(Keys.CONTROL, "a")
    page.element("search").send_keys("nothing like it")
    page.until(lambda: page.rows("stream-table") == ["No stream fits."])


def test_many_streams_are_searched_and_sorted_without_listing_them(page: Page, watched: sbp.Server) -> None:
    async def create() -> None:
        async with sbp.aio.connect(watched.address) as client:
            for first in range(0, 10_000, 500):
                names = (f"sensors/{number:05}" for number in range(first, first + 500))
                await asyncio.gather(*(client.create_stream(name) for name in names))
            await client.append("sensors/07777", [b"x" * 1_000] * 50)

    asyncio.run(create())
    page.open(watched.http_address)
    page.until(lambda: "100 of 10,000 shown" in page.text("stream-note"))
    page.browser.execute_script(
        "window.rendered = 0;"
        "new MutationObserver((changes) => {"
        "  for (const change of changes) for (const node of change.addedNodes) rendered += node.tagName === 'TR';"
        "}).observe(document.querySelector('#stream-table tbody'), { childList: true });"
    )
    page.element("search").send_keys("sensors/0999")
    page.until(lambda: len(page.rows("stream-table")) == 10)
    page.element("search").clear()
    page.browser.find_element(By.CSS_SELECTOR, "[data-sort=bytes]").click()
    page.until(lambda: page.rows("stream-table")[0].startswith("sensors/07777 0 \N{EN DASH} 50"))
    assert len(page.rows("stream-table")) == 100
    # A page of rows for each letter at the most, and not ten thousand.
    assert page.browser.execute_script("return rendered") <= 100 * (len("sensors/0999") + 3)


def test_rates_move_while_an_append_runs(page: Page, watched: sbp.Server) -> None:
    with sbp.connect(watched.address) as client:
        client.create_stream("busy")
    page.open(watched.http_address)
    page.until(lambda: page.rows("stream-table") and page.figure("append-records") == 0)
    with appending(watched, "busy"):
        page.until(lambda: page.figure("append-records") > 100)
        ends = page.rows("stream-table")
        page.until(lambda: page.rows("stream-table") != ends)
        page.until(lambda: "µs" in page.rows("latency")[0] or "ms" in page.rows("latency")[0])
    page.until(lambda: page.figure("append-records") == 0)


def test_hostile_text_is_text(page: Page, watched: sbp.Server) -> None:
    hostile = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    with sbp.connect(watched.address) as client:
        stream = client.create_stream("target")
        stream.append(b"x")
        commit = {
            "version": 1,
            "holder": "h",
            "commit": 1,
            "positions": [{"stream": stream.id, "name": hostile, "next": 0}],
        }
        client.create_stream("_sbp/cursors/evil").append(json.dumps(commit).encode())
    page.open(watched.http_address)
    page.until(lambda: page.rows("cursor-table"))
    (line,) = page.rows("cursor-table")
    assert line == f"evil stream {stream.id} 0 1", "what cannot be a stream's name is not passed on"
    page.element("search").send_keys(hostile)
    page.until(lambda: page.rows("stream-table") == ["No stream fits."])
    page.open(watched.http_address, f"/?search={hostile}&stream=<script>")
    assert page.browser.title != "owned"
    assert not page.browser.find_elements(By.CSS_SELECTOR, "main img, main script")


def test_lag_of_a_cursor_is_shown(page: Page, watched: sbp.Server) -> None:
    with sbp.connect(watched.address) as client:
        stream = client.create_stream("orders")
        stream.append([b"x"] * 10)
        for name, done in (("billing", 4), ("dashboards", 10), ("stuck", 1)):
            client.cursor(name, ["orders"]).commit({"orders": done})
    page.open(watched.http_address)
    lags = ["stuck orders 1 9", "billing orders 4 6", "dashboards orders 10 0"]
    page.until(lambda: page.rows("cursor-table") == lags)


@contextlib.contextmanager
def serve(
    *arguments: str, within: Sequence[str] = (), durability: str = "none", log: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], str, str | None]]:
    """``sbp serve`` as a process, started by the command ``within``: itself, its address, and that of its page."""
    sbp_serve = [str(Path(sys.executable).with_name("sbp")), "serve", "--listen", "127.0.0.1:0"]
    quiet = () if log else ("--log", "error")
    command = [*within, *sbp_serve, "--durability", durability, *quiet, *arguments]
    with started(command, log, page="--http" in arguments) as served:
        yield served


@contextlib.contextmanager
def started(
    command: Sequence[str], log: Path | None, *, page: bool
) -> Iterator[tuple[subprocess.Popen[str], str, str | None]]:
    """A process that serves and prints where, its log in a file."""
    with contextlib.ExitStack() as kept:
        errors = kept.enter_context(log.open("a")) if log else None
        process = kept.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True))
        kept.callback(process.kill)
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        where = process.stdout.readline().split("//")[1].rstrip("/\n") if page else None
        yield process, address, where


def asked(where: str | None, path: str) -> tuple[int, str]:
    """The code and the text of an answer of the server."""
    try:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def seen(page: Page, where: str | None, log: Path, *, kind: str, logged: str, metric: str, ready: int) -> None:
    """A trouble is seen in all four places: the page, the check of health, the metrics and the log."""
    page.until(lambda: metric in asked(where, "/metrics")[1].splitlines())
    code, text = asked(where, "/health/ready")
    assert code == ready, text
    (problem,) = [found for found in json.loads(text)["problems"] if found["kind"] == kind]
    page.until(lambda: problem["text"] in page.text("problems"))
    page.until(lambda: page.text("state-text") == ("failed" if kind == "failed" else "serving, with problems"))
    page.until(lambda: logged in log.read_text())


def test_a_killed_range_server_is_seen(page: Page, tmp_path: Path) -> None:
    driver = ("--role", "placement-driver", "--http", "127.0.0.1:0", "--data-dir", str(tmp_path / "pd"))
    log = tmp_path / "log"
    with serve(*driver, log=log) as (_, address, where):
        role = ("--role", "range-server", "--placement-driver", address, "--data-dir")
        with serve(*role, str(tmp_path / "a")) as (killed, at, _), serve(*role, str(tmp_path / "b")) as (_, other, _):
            with sbp.connect(address) as client:
                for number in range(4):
                    client.create_stream(f"s{number}")
            page.open(where, "/?stream=1")
            page.until(lambda: all(" up " in line for line in page.rows("server-table")))
            assert len(page.rows("server-table")) == 2
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            page.until(lambda: [line for line in page.rows("server-table") if at in line and " down " in line])
            assert [line for line in page.rows("server-table") if other in line and " up " in line]
            down = 'sbp_range_servers{state="down"} 1'
            seen(page, where, log, kind="peer-lost", logged="a range server is gone", metric=down, ready=200)
            assert at in page.text("problems")
            page.until(lambda: page.rows("range-table"))
            shown = page.rows("range-table")[0]
            assert (f"{at} (down)" in shown) or (other in shown), shown
            page.picture("status-page-trouble")
            page.leave()


def test_damage_is_seen(page: Page, tmp_path: Path) -> None:
    record = b"a record that will be damaged" * 4
    log = tmp_path / "log"
    arguments = ("--http", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with serve(*arguments, durability="fsync") as (_, address, where), sbp.connect(address) as client:
        stream = client.create_stream("orders")
        stream.append([b"before"])
        stream.append([record])
        # What is damaged behind everything else may never have been acknowledged.
        stream.append([b"behind it"])
        page.open(where)
        assert page.text("state-text") == "serving"
        segment = next(file for file in (tmp_path / "data").rglob("segment-*") if record in file.read_bytes())
        with segment.open("r+b") as file:
            file.seek(segment.read_bytes().index(record))
            file.write(b"A")
        # What is in memory is sound: a server that has just started reads it from the disk.
        page.leave()
    with serve(*arguments, durability="fsync", log=log) as (_, address, where), sbp.connect(address) as client:
        with pytest.raises(sbp.SbpError) as damaged:
            list(client.stream("orders").read(start=1, end=2, timeout=30))
        assert damaged.value.code == 2502
        page.open(where)
        told = "damaged records cannot be served"
        seen(page, where, log, kind="damage", logged=told, metric="sbp_damaged_ranges 1", ready=200)
        assert "offset 1" in page.text("problems")
        page.leave()


#: A server that its program keeps when it has failed; ``sbp serve`` ends then.
KEPT = """
import logging, sys, time
import sbp_native as sbp
logging.basicConfig(level="INFO", stream=sys.stderr)
with sbp.Server(sys.argv[1], http="127.0.0.1:0") as server:
    print("listening on", server.address)
    print(f"status page on http://{server.http_address}/", flush=True)
    with sbp.connect(server.address) as client:
        while True:
            client.ping()  # what the native side logs is told by threads that call it
            time.sleep(0.05)
"""


def test_a_failed_sync_is_seen(page: Page, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with FailingSyncs(tmp_path / "syncs") as syncs:
        command = [*syncs.within, sys.executable, "-c", KEPT, str(tmp_path / "data")]
        with started(command, log, page=True) as (_, address, where), sbp.connect(address) as client:
            stream = client.create_stream("orders")
            stream.append(b"sound")
            page.open(where)
            assert page.text("state-text") == "serving"
            syncs.failing = True
            with pytest.raises(sbp.SbpError) as lost:
                stream.append(b"lost", timeout=5)
            assert lost.value.indeterminate, vars(lost.value)
            assert syncs.failed
            seen(page, where, log, kind="failed", logged="the server has failed", metric="sbp_failed 1", ready=503)
            assert "sbp_ready 0" in asked(where, "/metrics")[1].splitlines()
            assert "restart the server" in page.text("problems")
            found = [record.value for batch in stream.read(end=1) for record in batch.records()]
            assert found == [b"sound"], "what is synced is served"
            page.leave()


def test_sbp_serve_ends_when_a_sync_has_failed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    data = ("--data-dir", str(tmp_path / "data"))
    with (
        FailingSyncs(tmp_path / "syncs") as syncs,
        serve(*data, within=syncs.within, durability="fsync", log=log) as (process, address, _),
        sbp.connect(address) as client,
    ):
        stream = client.create_stream("orders")
        stream.append(b"sound")
        syncs.failing = True
        with pytest.raises(sbp.SbpError):
            stream.append(b"lost", timeout=5)
        assert process.wait(PATIENCE) > 0
    assert "the server has failed" in log.read_text()
    with serve(*data, durability="fsync") as (_, address, _), sbp.connect(address) as client:
        found = [record.value for batch in client.stream("orders").read() for record in batch.records()]
        assert found[:1] == [b"sound"]


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace of its own (unshare -Urm), for a small disk")
def test_a_full_disk_is_seen(page: Page, tmp_path: Path) -> None:
    small, log = tmp_path / "small", tmp_path / "log"
    small.mkdir()
    mount = ("unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=40m tmpfs "$0" && exec "$@"', str(small))
    arguments = ("--http", "127.0.0.1:0", "--data-dir", str(small / "data"))
    with serve(*arguments, within=mount, log=log) as (_, address, where), sbp.connect(address) as client:
        stream = client.create_stream("orders")
        page.open(where)
        with pytest.raises(sbp.SbpError) as refused:
            for _ in range(100):
                stream.append([bytes(1 << 20)])
        assert refused.value.code == 2507
        told = "the disk is full: appends that need another segment are refused"
        seen(page, where, log, kind="disk-full", logged=told, metric="sbp_disk_full 1", ready=200)
        page.leave()


def test_a_server_that_asks_who_one_is_wants_a_token(page: Page, tmp_path: Path) -> None:
    names = str(tmp_path / "names")

    def token(name: str, grant: str) -> str:
        command = [
            str(Path(sys.executable).with_name("sbp")),
            "token",
            "create",
            name,
            "--allow",
            grant,
            "--auth",
            names,
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    tenant, reader = token("tenant", "read:mine/*"), token("reader", "read:*")
    arguments = ("--http", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--auth", names)
    with serve(*arguments) as (_, address, where):
        page.browser.get(f"http://{where}/")
        page.until(lambda: page.element("door").is_displayed())
        assert page.text("state-text") == "asks who you are"
        page.element("token").send_keys("guessed", Keys.ENTER)
        page.until(lambda: "does not know" in page.text("door-note"))
        page.element("token").send_keys(tenant, Keys.ENTER)
        page.until(lambda: "may not see" in page.text("door-note"))
        assert address not in page.browser.page_source
        page.element("token").send_keys(reader)
        page.element("enter").click()
        page.until(lambda: page.text("state-text") == "serving")
        assert not page.element("door").is_displayed()
        assert page.text("title") == address
        page.leave()
    complaints(page.browser)  # of what was refused


def test_a_server_that_is_gone_shows(page: Page) -> None:
    with sbp.Server(durability="none", http="127.0.0.1:0") as server:
        page.open(server.http_address)
    page.until(lambda: page.text("state-text") == "no answer")
    assert "from before" in page.text("problems")
    page.leave()
    assert any("CONNECTION_REFUSED" in told for told in complaints(page.browser))


@pytest.mark.parametrize(
    ("scheme", "width", "height"), [("light", 1280, 1180), ("dark", 1280, 1180), ("light", 390, 844)]
)
def test_it_fits_screens_and_follows_the_scheme(
    page: Page, scheme: str, width: int, height: int, tmp_path: Path
) -> None:
    page.resize(width, height)
    page.prefer(scheme)
    with sbp.Server(tmp_path / "data", http="127.0.0.1:0") as server, sbp.connect(server.address) as client:
        for name in ("clicks", "flights/arrivals", "flights/departures", "orders", "payments", "sensors/cellar"):
            client.create_stream(name).append([b"x" * 300] * 200)
        client.cursor("billing", ["orders"]).commit({"orders": 120})
        client.cursor("dashboards", ["clicks"]).commit({"clicks": 200})
        with client.writer("payments") as writer:
            writer.append(b"12.50")
        with pytest.raises(sbp.errors.SbpError):
            client.stream("missing").append(b"x")
        with appending(server, "clicks"):
            page.open(server.http_address)
            seconds = 12 if PICTURES else 2
            page.until(lambda: page.figure("append-records") > 0)
            time.sleep(seconds)  # the curves of the picture
            page.picture(f"status-page-{'phone' if width < 600 else scheme}")
            ground = page.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(246, 247, 245)" if scheme == "light" else "rgb(17, 22, 20)")
            wide = page.browser.execute_script("return document.scrollingElement.scrollWidth - innerWidth")
            assert wide <= 0, "nothing but tables is scrolled sideways"
            page.leave()
