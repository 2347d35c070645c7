"""The page of a real run, opened from disk: hover, keyboard, widths, dark, print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


@pytest.fixture
def page_of_run(finished: Path) -> str:
    return (finished / "report.html").as_uri()


def widest(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [("light", 1280, 900, "light"), ("dark", 1280, 900, "dark"), ("phone", 390, 844, "light")],
)
def test_it_fits_and_says_the_answer_first(
    open_page: Callable, page_of_run: str, shots: Path, name: str, width: int, height: int, scheme: str
) -> None:
    watched = open_page(page_of_run, width, height, scheme)
    page = watched.page
    assert page.locator("section h2").first.inner_text() == "Found"
    box = page.locator(".big").bounding_box()
    assert box is not None
    assert box["y"] < 400
    assert widest(page) <= 0  # nothing but inner parts scrolls sideways
    page.screenshot(path=shots / f"report-{name}.png", full_page=True)
    watched.check("file://")


def test_it_shows_where_the_network_errs(open_page: Callable, page_of_run: str, shots: Path) -> None:
    watched = open_page(page_of_run)
    page = watched.page
    matrix = page.locator("table.matrix")
    assert matrix.locator("tbody tr").count() == 10
    counts = [int(text) for text in matrix.locator("tbody td").all_inner_texts() if text]
    assert sum(counts) == 359  # every test image once
    right = sum(int(text) for text in matrix.locator("td.hit").all_inner_texts() if text)
    assert page.locator(".big").inner_text() == f"{100 * right / 359:.2f} %"
    wrong = page.locator(".thumb img")
    assert wrong.count() == min(12, 359 - right)
    assert all(wrong.nth(n).evaluate("one => one.naturalWidth") == 8 for n in range(wrong.count()))
    assert page.get_by_text("Expected calibration error").count() == 1
    assert page.locator("svg[aria-label^='reliability diagram']").count() == 1
    assert page.locator("svg[aria-label^='training loss of every training']").count() == 1
    matrix.scroll_into_view_if_needed()
    page.screenshot(path=shots / "report-errors.png")
    watched.check("file://")


def test_hover_and_keyboard_say_the_values_of_a_point(open_page: Callable, page_of_run: str) -> None:
    watched = open_page(page_of_run)
    page = watched.page
    point = page.locator(".chart circle").first
    said = page.locator(".said").first
    assert said.inner_text() == ""
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    assert said.inner_text() == point.get_attribute("aria-label")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "circle":
            break
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused
    assert focused in page.locator(".said").all_inner_texts()
    watched.check("file://")


def test_details_open_by_keyboard_and_for_print(open_page: Callable, page_of_run: str, shots: Path) -> None:
    watched = open_page(page_of_run, scheme="dark")
    page = watched.page
    first = page.locator("details").first
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert first.get_attribute("open") is not None
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(23, 33, 43)"  # dark ink, also in dark mode
    page.pdf(path=shots / "report.pdf")
    assert (shots / "report.pdf").stat().st_size > 10_000
    watched.check("file://")


def test_every_picture_has_words(open_page: Callable, page_of_run: str) -> None:
    page = open_page(page_of_run).page
    nameless = """() => [...document.querySelectorAll('svg, img, [role=img]')].filter(one =>
        !(one.getAttribute('aria-label') || one.getAttribute('alt') || one.querySelector('title'))).length"""
    assert page.locator("svg").count() >= 2
    assert page.evaluate(nameless) == 0


CONTRAST = """() => {
  const parts = (c) => { const n = c.match(/[\\d.]+/g).map(Number); const unit = c.startsWith('color(') ? 1 : 255;
    return [n[0] / unit, n[1] / unit, n[2] / unit, n.length > 3 ? n[3] : 1]; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map(v =>
    v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => { if (!e) return [1, 1, 1, 1]; const c = parts(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c; const under = ground(e.parentElement);
    return [0, 1, 2].map(i => c[3] * c[i] + (1 - c[3]) * under[i]); };
  const texts = document.querySelectorAll('h1, h2, h3, p, li, td, th, a, code, button, summary, span, strong');
  return [...texts].filter(e => e.offsetParent && e.textContent.trim() && !e.disabled).map(e => {
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))];
    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.tagName + ': ' + e.textContent.slice(0, 40)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(open_page: Callable, page_of_run: str, address: str, scheme: str) -> None:
    assert open_page(page_of_run, scheme=scheme).page.evaluate(CONTRAST) == []
    page = open_page(address, scheme=scheme).page
    page.wait_for_selector("#chosen:not([hidden])")
    assert page.evaluate(CONTRAST) == []
