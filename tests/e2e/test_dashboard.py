"""The dashboard in a browser, beside a search that really runs: progress, stop, resume, report, keyboard, phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from archwright.runs.run import Run

expect = pytest.importorskip("playwright.sync_api", reason="needs the extra e2e; run `make e2e`").expect


pytestmark = pytest.mark.e2e
SEARCH = ("search", "evolution", "--space", "nasbench201", "--data", "digits", "--evaluations", "12", "--epochs", "4")
SMALL = ("--channels", "8", "--cells", "1", "--final-epochs", "8", "--threads", "1", "--seed", "7")


def test_a_search_is_watched_stopped_and_resumed(
    open_page: Callable, address: str, start: Callable, runs: Path, shots: Path
) -> None:
    folder = runs / "2-live"
    process = start(*SEARCH, *SMALL, "--run", str(folder))
    try:
        watched = open_page(address)
        page = watched.page
        assert "token" not in page.url  # it is in a cookie by now
        link = page.locator("#runs a", has_text="2-live")
        link.wait_for()
        link.click()
        page.locator("#status.running").wait_for()
        page.locator("#stages li.now").wait_for()
        page.locator("progress").first.wait_for()
        page.locator("#charts svg").nth(1).wait_for()  # two evaluations later
        page.screenshot(path=shots / "dashboard-light.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=shots / "dashboard-dark.png")
        page.emulate_media(color_scheme="light")
        before = page.locator("#log").inner_text()
        expect(page.locator("#log")).not_to_have_text(before, timeout=180_000)
        page.get_by_role("button", name="Stop").click()
        page.locator("#said", has_text="Asked to stop").wait_for()
        page.locator("#status.stopped").wait_for()
        assert process.wait(180) == 130
    finally:
        process.kill()
        process.wait()
    assert Run.open(folder).events()[-1]["kind"] == "interrupted"
    page.screenshot(path=shots / "dashboard-stopped.png")
    page.get_by_role("button", name="Resume").focus()
    page.keyboard.press("Enter")
    page.locator("#status.running").wait_for()
    page.locator("#status.finished").wait_for()
    assert re.fullmatch(r"[\d.]+ %.*", page.locator("#result").inner_text())
    assert page.get_by_role("button", name="Stop").is_disabled()
    base = "{0.scheme}://{0.netloc}/".format(urlsplit(address))
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Report").click()
    report = opened.value
    report.wait_for_load_state()
    assert "Found" in report.inner_text("body")
    with report.expect_download() as download:
        report.locator("a", has_text="best.safetensors").first.click()
    assert Path(download.value.path()).stat().st_size > 1000
    watched.check(base)


def test_a_phone_and_a_keyboard(open_page: Callable, address: str, shots: Path) -> None:
    watched = open_page(address, 390, 844, "dark")
    page = watched.page
    page.locator("#runs a").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    page.screenshot(path=shots / "dashboard-phone.png")
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.dataset.run || ''"))
    assert "1-finished" in reached
    assert "report" in reached
    page.locator("#runs a", has_text="1-finished").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text("1-finished", timeout=180_000)
    page.set_viewport_size({"width": 1600, "height": 900})
    left, right = page.locator("nav").bounding_box(), page.locator("#detail").bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]  # side by side on a wide screen
    watched.check("http://127.0.0.1:")


def test_who_lacks_the_secret_sees_why(open_page: Callable, address: str) -> None:
    page = open_page(address.partition("?")[0]).page
    assert "Open the address that `archwright serve` printed." in page.inner_text("body")


@pytest.fixture
def other_site(tmp_path: Path) -> Iterator[str]:
    """A page of another server on this machine, which browsers send our cookie along with."""
    (tmp_path / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_another_site_cannot_read_or_press_a_button(browser, address: str, other_site: str) -> None:
    context = browser.new_context()
    context.new_page().goto(address)
    page = context.new_page()
    page.goto(other_site)
    base = address.partition("?")[0]
    ask = (
        "async ([url, options]) => { try { return await (await fetch(url, options)).text(); } catch { return null; } }"
    )
    button = [f"{base}api/runs/1-finished/resume", {"method": "POST", "mode": "no-cors", "credentials": "include"}]
    good: list[str] = []
    page.on("response", lambda response: good.append(response.url) if response.ok else None)
    assert not page.evaluate(ask, button)
    assert page.evaluate(ask, [f"{base}runs/1-finished/log.txt", {"credentials": "include"}]) is None
    assert good == []
    context.close()
