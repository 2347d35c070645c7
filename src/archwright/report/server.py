"""``archwright serve``: the runs of one folder as live pages on this machine.

Routes read through :mod:`~archwright.report.folders` and answer with what :mod:`~archwright.report.live` says;
:class:`~archwright.report.guard.Guard` has turned away everybody else before. Stopping writes a file that the search
looks for; resuming starts a process by a list of arguments.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from archwright.errors import InputError
from archwright.report.compared import comparison_page
from archwright.report.folders import NotHereError, artifact, open_run
from archwright.report.guard import Guard
from archwright.report.live import UNREADABLE, detail, executed, overview
from archwright.report.looks import Looks, Readers
from archwright.report.page import run_page
from archwright.report.parts import REPORT
from archwright.report.patience import ImpatientProtocol
from archwright.report.resuming import Resumer
from archwright.report.style import CSS, POLICY, SCRIPT
from archwright.runs.files import Json
from archwright.runs.run import LONGEST_NOTE, Run
from archwright.runs.telling import told
from archwright.search.engine import stop
from archwright.terminal import visible

HOST = "127.0.0.1"
PARTS = Path(__file__).parent / "dashboard"
SECONDS_A_LOOK = 1.0
"""Least time between two looks at the files for all pages; a look may take a tenth of the time at most."""
MOST_COMPARED = 12
"""Runs in one comparison."""
SECONDS_A_SIGN = 15.0
"""After so long without news a line is sent all the same, so that a browser that went away is noticed."""


def dashboard(root: Path, port: int, token: str, closing: Callable[[], bool] = lambda: False) -> ASGIApp:
    """The guarded application for the runs of a folder.

    Args:
        root: the folder.
        port: that it listens on; requests for another host are refused.
        token: the secret that a browser must bring.
        closing: whether streams should end because the server does.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    root = root.resolve()
    resumer, readers = Resumer(), Readers(root)
    _add_pages(app, root, readers)
    _add_actions(app, root, resumer)
    looks = Looks(lambda name: overview(root) if name is None else _look(readers, name, resumer), SECONDS_A_LOOK)

    @app.get("/api/stream")
    async def stream(request: Request) -> Response:
        name = request.query_params.get("run")
        kinds = {"runs": None, "run": name} if name else {"runs": None}
        return StreamingResponse(_news(looks, kinds, closing), media_type="text/event-stream")

    def refused(_request: Request, error: Exception) -> Response:
        return JSONResponse({"error": visible(str(error))}, 404 if isinstance(error, NotHereError) else 409)

    for kind in UNREADABLE:  # of a damaged run, by whatever its files lack
        app.add_exception_handler(kind, refused)
    return Guard(app, port, token)


def _add_pages(app: FastAPI, root: Path, readers: Readers) -> None:
    """Everything that only reads."""

    @app.get("/")
    def index() -> Response:
        return FileResponse(PARTS / "index.html")

    @app.get("/dashboard.css")
    def style() -> Response:
        return Response(CSS + (PARTS / "dashboard.css").read_text(), media_type="text/css")

    @app.get("/dashboard.js")
    def script() -> Response:
        return Response(SCRIPT + (PARTS / "dashboard.js").read_text(), media_type="text/javascript")

    @app.get("/runs/{name}/" + REPORT)
    def report(name: str) -> Response:
        # Written anew: what lies in the folder may be somebody else's page.
        with readers.story(name) as (run, story):
            return HTMLResponse(run_page(run, story, linked=False), headers={"Content-Security-Policy": POLICY})

    @app.get("/compare")
    def compare(request: Request) -> Response:
        names = request.query_params.getlist("run")
        if not 2 <= len(names) <= MOST_COMPARED:
            raise InputError(f"two to {MOST_COMPARED} runs to compare", str(len(names)))
        text = comparison_page([open_run(root, name) for name in names], _page_address)
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    @app.get("/runs/{name}/log.txt")
    def log(name: str) -> Response:
        return StreamingResponse(_log(open_run(root, name)), media_type="text/plain")

    @app.get("/runs/{name}/artifacts/{path:path}")
    def file(name: str, path: str) -> Response:
        found = artifact(open_run(root, name), path)
        return FileResponse(found, media_type="application/octet-stream", filename=found.name)


def _add_actions(app: FastAPI, root: Path, resumer: Resumer) -> None:
    """What a button does."""

    @app.post("/api/runs/{name}/stop")
    def stop_run(name: str) -> dict[str, str]:
        stop(open_run(root, name).folder)
        return {"said": "Asked to stop; it saves what it has at its next step."}

    @app.post("/api/runs/{name}/resume")
    def resume_run(name: str, allow_import: bool = False) -> dict[str, str]:
        run = open_run(root, name)
        if run.status() != "stopped":
            raise InputError("a stopped run", f"a {run.status()} one")
        named = executed(run.configuration)
        if named and not allow_import:
            raise InputError(f"your permission to run {', '.join(named)}, which this run names", "none")
        resumer.start(run.folder, allow_import)
        return {"said": "Starting; the first stage follows in a few seconds."}

    @app.post("/api/runs/{name}/note")
    async def write_note(name: str, request: Request) -> dict[str, str]:
        run, text = open_run(root, name), b""
        async for part in request.stream():
            text += part
            if len(text) > 4 * LONGEST_NOTE:
                raise InputError(f"a note of at most {LONGEST_NOTE:,} characters", "a longer one")
        run.write_note(text.decode(errors="replace"))
        return {"said": "The note is kept in the run's folder."}

    @app.post("/api/runs/{name}/delete")
    def delete_run(name: str) -> dict[str, str]:
        open_run(root, name).delete()
        return {"said": f"{name} is removed."}


def _page_address(run: Run) -> str:
    return f"/runs/{quote(run.folder.name, safe='')}/{REPORT}"


def _log(run: Run) -> Iterator[str]:
    """A line an event, and why it ends where one cannot be read."""
    try:
        for event in run.each_event():
            yield told(event) + "\n"
    except UNREADABLE as error:
        yield f"{error}\n"


def _look(readers: Readers, name: str, resumer: Resumer) -> dict[str, Json]:
    """What a page shows of a run now."""
    try:
        with readers.story(name) as (run, story):
            shown = detail(run, story)
    except UNREADABLE as error:
        return {"name": name, "status": "damaged", "title": name, "failure": str(error)}
    if shown["status"] == "stopped" and resumer.starting(name):
        shown |= {"status": "starting", "can_resume": False}
    return {**shown, "failure": resumer.failure(name) if shown["status"] == "stopped" else ""}


async def _news(looks: Looks, kinds: Mapping[str, str | None], closing: Callable[[], bool]) -> AsyncIterator[str]:
    """Server-sent events: at first everything, then what has changed.

    Args:
        looks: what is to be shown.
        kinds: of events: the run of each, or None for all runs.
        closing: whether the server ends.
    """
    before: dict[str, str] = {}
    sent = time.monotonic()
    while not closing():
        begin = time.monotonic()
        for kind, name in kinds.items():
            text = await looks.text(name)
            if before.get(kind) != text:
                before[kind], sent = text, begin
                yield f"event: {kind}\ndata: {text}\n\n"
        if begin - sent > SECONDS_A_SIGN:
            sent = begin
            yield ": still here\n\n"
        await asyncio.sleep(SECONDS_A_LOOK)


def listening(port: int) -> socket.socket:
    """A socket on this machine's own address; a taken port is an error that says what to do."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen()
    except OSError as error:
        found.close()
        do = "Choose another one, or 0 for any free one (--port)."
        raise InputError("a free port", f"port {port} ({error.strerror})", do) from error
    return found


def serve(root: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve the runs in ``root`` until Ctrl-C.

    Args:
        root: folder with runs.
        port: to listen on; 0 takes a free one.
        say: gets the address with its secret.
    """
    if not root.is_dir():
        do = "Search first, or set ARCHWRIGHT_RUNS to your runs folder."
        raise InputError("a folder with runs", f"{root}, which is no folder", do)
    with listening(port) as found:
        number, token = found.getsockname()[1], secrets.token_urlsafe(32)
        app = dashboard(root, number, token, lambda: server.should_exit)
        config = uvicorn.Config(app, log_level="error", access_log=False, proxy_headers=False, server_header=False)
        config.ws, config.timeout_graceful_shutdown = "none", 3
        config.http = ImpatientProtocol
        server = uvicorn.Server(config)
        say(f"Dashboard of {root.resolve()}: http://{HOST}:{number}/?token={token}")
        server.run(sockets=[found])
