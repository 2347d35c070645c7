"""The dashboard in a browser, beside a search that really runs: progress, stop, resume, report, keyboard, phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from archwright.runs.run import Run
from archwright.search.answer import Answer

expect = pytest.importorskip("playwright.sync_api", reason="needs the extra e2e; run `make e2e`").expect


pytestmark = pytest.mark.e2e
SEARCH = ("search", "evolution", "--space", "nasbench201", "--data", "digits", "--evaluations", "12", "--epochs", "4")
SMALL = ("--channels", "8", "--cells", "1", "--final-epochs", "8", "--threads", "1", "--seed", "7")


def test_a_search_is_watched_stopped_and_resumed(
    open_page: Callable, address: str, start: Callable, runs: Path, shots: Path
) -> None:
    folder = runs / "evolution-seed-7"
    process = start(*SEARCH, *SMALL, "--run", str(folder))
    try:
        watched = open_page(address)
        page = watched.page
        assert "token" not in page.url  # it is in a cookie by now
        link = page.locator("#runs a", has_text="evolution-seed-7")
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
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.dataset.run || ''"))
    assert "binas-two-limits" in reached
    assert "report" in reached
    page.locator("#runs a", has_text="binas-two-limits").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text("binas-two-limits", timeout=180_000)
    page.set_viewport_size({"width": 1600, "height": 900})
    left, right = page.locator("nav").bounding_box(), page.locator("#detail").bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]  # side by side on a wide screen
    watched.check("http://127.0.0.1:")


def test_who_lacks_the_secret_sees_why(open_page: Callable, address: str) -> None:
    page = open_page(address.partition("?")[0]).page
    assert "Open the address that `archwright serve` printed." in page.inner_text("body")


def is_finished(folder: Path) -> bool:
    return (folder / "run.json").is_file() and Run.open(folder).status() == "finished"


def test_runs_are_found_sorted_noted_and_compared(
    open_page: Callable, address: str, second: Path, finished: Path, shots: Path
) -> None:
    watched = open_page(address)
    page = watched.page
    names = page.locator("#runs a")
    page.locator("#runs a", has_text=second.name).wait_for()
    page.locator("#search").fill("binas")
    expect(names).to_have_count(1)
    page.locator("#search").fill("")
    page.locator("#show").select_option("finished")
    page.locator("#sort").select_option("best")
    best = {one.name: Answer.read(one).best.accuracy for one in finished.parent.iterdir() if is_finished(one)}
    assert {finished.name, second.name} <= set(best)
    first = names.first.inner_text()
    assert any(name in first for name, accuracy in best.items() if accuracy == max(map(float, best.values())))
    page.locator("#sort").select_option("name")
    assert second.name in names.first.inner_text()
    names.first.click()
    expect(page.locator("#name")).to_have_text(second.name, timeout=180_000)
    expect(page.locator("#charts svg").first).to_be_visible(timeout=180_000)
    page.locator("#note-card summary").click()
    page.locator("#note").fill("the quick one")
    page.get_by_role("button", name="Keep the note").click()
    page.locator("#runs a", has_text="the quick one").wait_for()
    assert Run.open(second).note == "the quick one\n"
    assert page.locator("#compare").is_disabled()
    for name in (second.name, finished.name):
        page.get_by_role("checkbox", name=f"Compare {name}").check()
    page.screenshot(path=shots / "dashboard-chosen.png")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Compare 2 runs").click()
    compared = opened.value
    compared.wait_for_load_state()
    assert "binas-two-limits is better than a-random-search" in compared.inner_text("body")
    assert compared.locator("svg text", has_text=second.name).count() == 1
    assert compared.locator("tr", has_text="method").count() >= 1
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
        compared.emulate_media(color_scheme=scheme)
        compared.set_viewport_size({"width": width, "height": 900})
        assert compared.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        kind = "phone" if width < 500 else scheme
        compared.screenshot(path=shots / f"comparison-{kind}.png", full_page=True)
    compared.locator("a", has_text=second.name).first.click()
    compared.wait_for_load_state()
    assert "Found" in compared.inner_text("body")
    watched.check("http://127.0.0.1:")


def test_a_run_is_deleted_after_a_question(open_page: Callable, address: str, second: Path, runs: Path) -> None:
    copy = runs / "z-copy"
    shutil.copytree(second, copy)
    page = open_page(address).page
    page.locator("#runs a", has_text="z-copy").click()
    expect(page.locator("#name")).to_have_text("z-copy", timeout=180_000)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete").click()
    assert copy.exists()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#runs a", has_text="z-copy")).to_have_count(0, timeout=180_000)
    assert not copy.exists()


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
    options = {"method": "POST", "mode": "no-cors", "credentials": "include"}
    button = [f"{base}api/runs/binas-two-limits/resume", options]
    good: list[str] = []
    page.on("response", lambda response: good.append(response.url) if response.ok else None)
    assert not page.evaluate(ask, button)
    assert page.evaluate(ask, [f"{base}runs/binas-two-limits/log.txt", {"credentials": "include"}]) is None
    assert good == []
    context.close()
