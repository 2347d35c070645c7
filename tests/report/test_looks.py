"""Many pages that look on cost one look, and whoever does not finish a request is not waited for."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra report")

import uvicorn

from archwright.report import patience, server
from archwright.report.looks import MOST_READERS, MOST_SHOWN, Looks, Readers
from archwright.runs.run import Run


def make_run(root: Path, name: str) -> Run:
    return Run.create(root / name, {"method": "random", "space": "nasbench201", "seed": 0}, {})


def test_two_hundred_pages_cost_one_look() -> None:
    asked: list[str | None] = []

    def look(name: str | None) -> dict[str, int]:
        asked.append(name)
        time.sleep(0.02)
        return {"number": len(asked)}

    async def everybody() -> list[str]:
        looks = Looks(look, 60)
        found = await asyncio.gather(*(looks.text("a") for _ in range(200)))
        return [*found, await looks.text("a"), await looks.text(None)]

    found = asyncio.run(everybody())
    assert asked == ["a", None]
    assert {json.loads(text)["number"] for text in found[:-1]} == {1}


def test_a_look_is_made_anew_after_its_time_which_grows_with_what_it_costs() -> None:
    costs, asked = 0.05, []

    def look(_: str | None) -> int:
        asked.append(time.monotonic())
        time.sleep(costs)
        return len(asked)

    async def ask(seconds: float) -> None:
        looks, end = Looks(look, 0.01), time.monotonic() + seconds
        while time.monotonic() < end:
            await looks.text("a")
            await asyncio.sleep(0.005)

    asyncio.run(ask(1.2))
    assert 3 <= len(asked) <= 4  # two at once, then every half second, not every hundredth


def test_what_nobody_asks_for_any_more_is_forgotten(tmp_path: Path) -> None:
    async def ask() -> Looks:
        looks = Looks(lambda name: name, 60)
        for number in range(3 * MOST_SHOWN):
            await looks.text(f"page {number}")
        return looks

    assert len(asyncio.run(ask())._shown) == MOST_SHOWN
    readers = Readers(tmp_path)
    for number in range(MOST_READERS + 5):
        make_run(tmp_path, f"{number}")
        with readers.story(f"{number}"):
            pass
    assert len(readers._readers) == MOST_READERS


# --- requests that never end -----------------------------------------------------------------------------------------


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that waits a third of a second."""
    monkeypatch.setattr(patience, "SECONDS_A_REQUEST", 0.3)
    make_run(tmp_path / "runs", "one")
    with server.listening(0) as found:
        number = found.getsockname()[1]
        app = server.dashboard(tmp_path / "runs", number, "token", lambda: serving.should_exit)
        config = uvicorn.Config(app, log_level="critical", http=patience.ImpatientProtocol, ws="none", lifespan="off")
        config.timeout_graceful_shutdown = 1
        serving = uvicorn.Server(config)
        serving.install_signal_handlers = lambda: None  # type: ignore[attr-defined, method-assign]
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [found]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not serving.started and time.monotonic() < deadline:
            time.sleep(0.01)
        yield number
        serving.should_exit = True
        thread.join(10)


def seconds_until_closed(connection: socket.socket, most: float) -> float:
    begin = time.monotonic()
    connection.settimeout(most)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return most
    return time.monotonic() - begin


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        b"POST /api/runs/one/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nhalf",
    ],
)
def test_a_request_that_is_not_finished_ends(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        assert seconds_until_closed(connection, 8) < 5


def test_dripping_bytes_is_no_way_around(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        begin = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - begin < 8:
                connection.sendall(b"X")
                time.sleep(0.05)
        assert time.monotonic() - begin < 5


def test_a_whole_request_is_answered_and_a_stream_goes_on(port: int) -> None:
    head = f"Host: 127.0.0.1:{port}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET /?token=token HTTP/1.1\r\n{head}\r\n".encode())
        answer = connection.recv(65536).decode()
        assert answer.startswith("HTTP/1.1 200")
        cookie = next(line for line in answer.splitlines() if line.lower().startswith("set-cookie"))
    kept = cookie.split(":", 1)[1].split(";")[0].strip()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET /api/stream?run=one HTTP/1.1\r\n{head}Cookie: {kept}\r\n\r\n".encode())
        assert seconds_until_closed(connection, 1.5) == 1.5
