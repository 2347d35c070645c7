"""A browser, a real run with its page, and the dashboard beside a real search. Slow by nature: `make e2e` runs these.

Screenshots go to ``$ARCHWRIGHT_SCREENSHOTS`` (by default ``build/screenshots``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
"""Works in a container, and asks nobody outside."""
GET_ONE = "Install one: python -m playwright install chromium, or your system's package chromium."
SECONDS = 300
"""How long something may take on a busy machine before a test gives up."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Playwright's own Chromium where it is installed, else the system's."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra e2e; run `make e2e`")
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        found = next(
            (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
        )
        path = str(own) if own.exists() else found
        if path is None:
            pytest.exit(f"No Chromium was found. {GET_ONE}", returncode=2)
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shots() -> Path:
    folder = Path(os.environ.get("ARCHWRIGHT_SCREENSHOTS", ROOT / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Watched:
    """A page that remembers what went wrong in it and where it asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(1000 * SECONDS)
        page.on("console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def check(self, *allowed: str) -> None:
        """No error, and no request to anywhere but ``allowed`` places."""
        assert self.errors == []
        outside = [url for url in self.requests if not url.startswith((*allowed, "data:"))]
        assert outside == []


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Opens an address at a width and height, light or dark."""
    contexts = []

    def opened(address: str, width: int = 1280, height: int = 900, scheme: str = "light") -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.goto(address, timeout=1000 * SECONDS)
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder."""
    return tmp_path_factory.mktemp("e2e") / "runs"


@pytest.fixture(scope="session")
def start(runs: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts the program beside the test."""
    environment = {**os.environ, "ARCHWRIGHT_RUNS": str(runs), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def started(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "archwright", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)

    return started


@pytest.fixture(scope="session")
def finished(runs: Path, start: Callable[..., subprocess.Popen[str]]) -> Path:
    """A finished search: two latency limits on the embedded digits, by a plan that no busy machine changes."""
    from helpers.binas_plans import PLAN, planned_run, space_of

    folder = runs / "binas-two-limits"
    plan = PLAN.model_copy(update={"seconds": 10.0})
    kept = planned_run(runs.parent / "plan", space_of(8, 10, 1), plan)
    small = ("--data", "digits", "--threads", "1", "--plan-from", kept, "--minutes-of", "processor")
    with start("search", "binas", *small, "--run", str(folder)) as process:
        assert process.wait(4 * SECONDS) == 0
    return folder


@pytest.fixture(scope="session")
def second(runs: Path, start: Callable[..., subprocess.Popen[str]]) -> Path:
    """Another finished search on the same images, by another method."""
    folder = runs / "a-random-search"
    small = ("--evaluations", "3", "--epochs", "2", "--channels", "4", "--cells", "1", "--threads", "1")
    with start("search", "random", "--data", "digits", *small, "--run", str(folder)) as process:
        assert process.wait(4 * SECONDS) == 0
    return folder


@pytest.fixture(scope="session")
def address(finished: Path, start: Callable[..., subprocess.Popen[str]]) -> Iterator[str]:
    """The dashboard's, as the program prints it."""
    with start("serve", "--port", "0") as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found.group()
        process.send_signal(2)  # Ctrl-C
        assert process.wait(SECONDS) == 0
