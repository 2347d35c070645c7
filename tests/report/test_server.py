"""The dashboard: who gets in, what can be read, and what its buttons do."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra report")

from fastapi.testclient import TestClient

from archwright.errors import InputError
from archwright.report import resuming, server
from archwright.report.live import overview
from archwright.report.resuming import Resumer
from archwright.runs.run import Run

PORT, TOKEN = 8765, "the-secret-of-this-start"
HERE = f"http://127.0.0.1:{PORT}"
SAME = {"Origin": HERE}


def make_run(root: Path, name: str, **configuration: object) -> Run:
    asked = {"method": "random", "space": "nasbench201", "seed": 0, "data": "digits", **configuration}
    run = Run.create(root / name, asked, {})
    run.describe(plan=[{"name": "search", "title": "evaluate proposals"}, {"name": "answer", "title": "answer"}])
    run.event("started", threads=1)
    run.event("stage", name="search", title="evaluate proposals")
    run.event("said", text="<script>alert(1)</script>")
    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs", "stopped [one]")
    (tmp_path / "secret.txt").write_text("not for you")
    return tmp_path / "runs"


@pytest.fixture
def client(root: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A browser that has not been invited; streams end after one look."""
    monkeypatch.setattr(server, "SECONDS_A_LOOK", 0.0)
    looks = iter([False, True])
    return TestClient(server.dashboard(root, PORT, TOKEN, lambda: next(looks)), base_url=HERE)


@pytest.fixture
def guest(client: TestClient) -> TestClient:
    """A browser that opened the printed address."""
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


READS = ("/", "/dashboard.js", "/dashboard.css", "/api/stream", "/runs/stopped [one]/report.html")


@pytest.mark.parametrize("path", READS)
def test_without_the_secret_nobody_gets_in(client: TestClient, path: str) -> None:
    for query in ("", "?token=", "?token=wrong", f"?token={TOKEN}x", f"?token={TOKEN}&token={TOKEN}"):
        answer = client.get(path + query)
        assert answer.status_code == 403
        assert "archwright serve" in answer.text
        assert "set-cookie" not in answer.headers


def test_the_secret_is_for_the_first_page_only_then_a_cookie(client: TestClient) -> None:
    assert client.get(f"/dashboard.js?token={TOKEN}").status_code == 403
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert TOKEN not in cookie
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", f"archwright-{PORT}="):
        assert part in cookie
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.get("/", headers={"Cookie": f"archwright-{PORT}={TOKEN}"}).status_code == 403


def test_cookies_of_other_servers_do_no_harm(client: TestClient) -> None:
    value = re.search(r"=([^;]+);", client.get(f"/?token={TOKEN}").headers["set-cookie"])
    assert value is not None
    client.cookies.clear()
    mixed = f'other="; bad[]=;; archwright-{PORT}={value[1]}; archwright-1=x'
    assert client.get("/", headers={"Cookie": mixed}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"0.0.0.0:{PORT}", ""]
)
def test_another_name_for_this_machine_is_refused(guest: TestClient, host: str) -> None:
    """DNS rebinding: the browser believes that it talks to evil.example."""
    assert guest.get("/", headers={"Host": host}).status_code == 421
    assert guest.get(f"/?token={TOKEN}", headers={"Host": host}).status_code == 421


OTHERS = ("http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1", f"http://localhost:{PORT}")


@pytest.mark.parametrize("origin", OTHERS)
def test_other_sites_are_refused(guest: TestClient, origin: str) -> None:
    for path in READS:
        assert guest.get(path, headers={"Origin": origin}).status_code == 403
    assert guest.post("/api/runs/stopped [one]/resume", headers={"Origin": origin}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_embeds_is_refused(guest: TestClient, site: str) -> None:
    """Images, scripts and frames carry no Origin; a server on another port of this machine is ``same-site``."""
    assert guest.get("/dashboard.js", headers={"Sec-Fetch-Site": site}).status_code == 403
    embedded = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert guest.get(f"/?token={TOKEN}", headers=embedded).status_code == 403
    followed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}  # a click on the printed address in a web mail
    assert guest.get(f"/?token={TOKEN}", headers=followed).status_code == 200
    assert guest.get("/", headers=followed).status_code == 403


def test_changing_something_needs_an_origin_and_a_post(guest: TestClient) -> None:
    path = "/api/runs/stopped [one]/stop"
    assert guest.post(path).status_code == 403
    assert guest.get(path).status_code in (404, 405)
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"):
        assert guest.request(method, path, headers=SAME).status_code == 405


def test_no_sockets(guest: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), guest.websocket_connect("/api/stream"):
        pass


def test_the_browser_is_told_to_load_nothing_from_elsewhere(guest: TestClient) -> None:
    for path in ("/", "/runs/stopped [one]/report.html", "/runs/none/report.html"):
        headers = guest.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe-inline" not in re.sub(r"style-src(-attr)? [^;]*", "", headers["content-security-policy"])
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


LEADING_OUT = (
    "/runs/../secret.txt/report.html",
    "/runs/..%2f..%2fsecret.txt/report.html",
    "/runs/%2e%2e/report.html",
    "/runs/./report.html",
    "/runs/a%00b/report.html",
    "/runs/stopped%20[one]/artifacts/../run.json",
    "/runs/stopped%20[one]/artifacts/..%2frun.json",
    "/runs/stopped%20[one]/artifacts/%2e%2e/%2e%2e/%2e%2e/secret.txt",
    "/runs/stopped%20[one]/artifacts//etc/passwd",
    "/runs/stopped%20[one]/artifacts/%2fetc%2fpasswd",
    "/runs/stopped%20[one]/artifacts/a%00b",
    "/runs/stopped%20[one]/artifacts/",
    "/runs/stopped%20[one]/run.json",
    "/runs//etc/log.txt",
)


@pytest.mark.parametrize("path", LEADING_OUT)
def test_no_path_leads_out_of_a_run(guest: TestClient, path: str) -> None:
    # The client would tidy the path up: the application gets it as an attacker sends it.
    from urllib.parse import unquote

    sent = []

    async def ask() -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        cookie = "; ".join(f"{name}={value}" for name, value in guest.cookies.items())
        headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"cookie", cookie.encode())]
        scope = {"type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "headers": headers}
        scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", PORT)}
        scope |= {"client": ("127.0.0.1", 1), "root_path": "", "asgi": {"version": "3.0"}}
        await guest.app(scope, receive, send)  # type: ignore[arg-type]

    import asyncio

    asyncio.run(ask())
    assert sent[0]["status"] == 404
    body = b"".join(message.get("body", b"") for message in sent[1:])  # type: ignore[misc]
    assert b"not for you" not in body
    assert b"configuration" not in body


def test_links_and_pipes_are_refused(guest: TestClient, root: Path) -> None:
    outside = root.parent / "outside"
    make_run(root.parent, "outside")
    (root / "linked").symlink_to(outside)
    assert guest.get("/runs/linked/report.html").status_code == 404
    run = make_run(root, "with a link")
    link = run.artifact("model.onnx")
    link.symlink_to(root.parent / "secret.txt")
    for path in ("report.html", "log.txt", "artifacts/model.onnx"):
        answer = guest.get(f"/runs/with a link/{path}")
        assert answer.status_code == 409
        assert "not for you" not in answer.text
    link.unlink()
    assert guest.get("/runs/with a link/log.txt").status_code == 200
    (run.folder / "events.jsonl").unlink()
    os.mkfifo(run.folder / "events.jsonl")  # reading it would wait for ever
    assert guest.get("/runs/with a link/log.txt").status_code == 409
    states = {row["name"]: row["status"] for row in overview(root)["runs"]}
    assert states == {"stopped [one]": "stopped", "with a link": "damaged", "linked": "damaged"}


def test_a_plan_that_names_files_elsewhere_reads_none(guest: TestClient, root: Path) -> None:
    run = make_run(root, "odd")
    run.describe(plan=[{"name": "../../../secret", "title": "x"}])
    answer = guest.get("/runs/odd/report.html")
    assert answer.status_code == 409
    assert "a stage whose name no file has" in answer.text


def test_names_of_any_length_and_runs_of_any_shape_are_answered(guest: TestClient, root: Path) -> None:
    long = "n" * 5000
    for path in (f"/runs/{long}/report.html", f"/runs/{long}/log.txt", f"/runs/x/artifacts/{long}"):
        assert guest.get(path).status_code == 404
    for action in ("stop", "resume"):
        assert guest.post(f"/api/runs/{long}/{action}", headers=SAME).status_code == 404
    assert guest.get(f"/runs/stopped [one]/artifacts/{long}").status_code == 404
    run = make_run(root, "odd")
    run.artifact("result.json").write_text('{"best": 3}')
    assert guest.get("/runs/odd/report.html").status_code == 409
    run = make_run(root, "strange")
    run.describe(machine={"a": 1}, versions={"b": [1]})
    run.event("other", epoch=1, cells=[1])
    run.event("other", epoch=2, cells=[1])
    assert guest.get("/runs/strange/report.html").status_code == 200  # odd events are passed over


def test_files_are_downloads_and_reports_are_written_anew(guest: TestClient, root: Path) -> None:
    run = Run.open(root / "stopped [one]")
    run.artifact("page.html").write_text("<script>alert(1)</script>")
    (run.folder / "report.html").write_text("<script>alert(1)</script>")
    answer = guest.get("/runs/stopped [one]/artifacts/page.html")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    text = guest.get("/runs/stopped [one]/report.html").text
    assert "runs resume" in text
    assert "alert(1)" not in text
    assert "<script>alert(1)" in guest.get("/runs/stopped [one]/log.txt").text
    assert guest.get("/runs/stopped [one]/log.txt").headers["content-type"].startswith("text/plain")


def news(text: str) -> dict[str, dict[str, object]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return {kind: json.loads(data) for kind, data in found}


def test_the_stream_tells_of_all_runs_and_of_the_chosen_one(guest: TestClient) -> None:
    answer = guest.get("/api/stream", params={"run": "stopped [one]"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = news(answer.text)
    assert [row["name"] for row in told["runs"]["runs"]] == ["stopped [one]"]
    run = told["run"]
    assert run["status"] == "stopped"
    assert run["can_resume"]
    assert not run["can_stop"]
    assert [stage["state"] for stage in run["stages"]] == ["begun", "to do"]
    assert run["log"][-1].endswith("<script>alert(1)</script>")  # as text; the page shows it as text


def test_a_run_that_is_not_there_is_said_in_the_stream(guest: TestClient) -> None:
    told = news(guest.get("/api/stream", params={"run": "../secret.txt"}).text)
    assert told["run"]["status"] == "damaged"
    assert "expected the name of a run" in told["run"]["failure"]


def test_progress_and_the_request_to_stop_of_a_run_at_work(guest: TestClient, root: Path) -> None:
    from archwright.runs.progress import KeptProgress, Progress

    run = Run.open(root / "stopped [one]")
    with run.locked(), KeptProgress(Progress(), run).task("evaluating", 10, 2) as bar:
        bar.advance(3)
        told = news(guest.get("/api/stream", params={"run": run.folder.name}).text)["run"]
        assert told["status"] == "running"
        assert told["bars"][0]["title"] == "evaluating"
        assert [stage["state"] for stage in told["stages"]] == ["at work", "to do"]
        answer = guest.post("/api/runs/stopped [one]/stop", headers=SAME)
        assert answer.status_code == 200
        assert run.stop_file.exists()
    refused = guest.post("/api/runs/stopped [one]/stop", headers=SAME)
    assert refused.status_code == 409
    assert "expected a run that a process works on" in refused.json()["error"]


def test_resume_starts_the_program_without_a_shell(
    guest: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, object]]] = []

    class Process:
        returncode = 2

        def __init__(self, command: list[str], **options: object) -> None:
            started.append((command, options))
            options["stderr"].write(b"noise\nerror: expected \x1b[31mimages, got none.\n")  # type: ignore[attr-defined]

        def poll(self) -> int | None:
            return None if len(started) == 1 and not ended else 2

    ended: list[bool] = []
    monkeypatch.setattr(resuming.subprocess, "Popen", Process)
    path = "/api/runs/stopped [one]/resume"
    assert guest.post(path, headers=SAME).status_code == 200
    (command, options) = started[0]
    assert command == [sys.executable, "-m", "archwright", "runs", "resume", str(root / "stopped [one]")]
    assert not options.get("shell")
    assert options["start_new_session"]
    assert guest.post(path, headers=SAME).status_code == 409  # it is being continued
    ended.append(True)
    told = news(guest.get("/api/stream", params={"run": "stopped [one]"}).text)["run"]
    assert told["failure"] == r"error: expected \x1b[31mimages, got none."
    assert guest.post("/api/runs/none/resume", headers=SAME).status_code == 404


def test_a_finished_run_is_not_resumed(guest: TestClient, root: Path) -> None:
    run = Run.open(root / "stopped [one]")
    run.artifact("result.json").write_text("{}")
    answer = guest.post("/api/runs/stopped [one]/resume", headers=SAME)
    assert answer.status_code == 409
    assert "expected a stopped run" in answer.json()["error"]


def test_what_a_run_imports_is_said(guest: TestClient, root: Path) -> None:
    make_run(root, "own", space="my_module:MySpace", evaluate="my_module:score")
    told = news(guest.get("/api/stream", params={"run": "own"}).text)["run"]
    assert told["imports"] == ["the module my_module (not found here)"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"executor": "ray", "address": "far.example:6379"}, "what the Ray cluster at far.example:6379 answers"),
        ({"benchmark": "nats:/tmp/theirs"}, "the pickles in /tmp/theirs"),
    ],
)
def test_a_cluster_and_pickles_need_a_permission_like_a_module(
    guest: TestClient, root: Path, settings: dict[str, str], said: str
) -> None:
    make_run(root, "far", **settings)
    assert news(guest.get("/api/stream", params={"run": "far"}).text)["run"]["imports"] == [said]
    refused = guest.post("/api/runs/far/resume", headers=SAME)
    assert refused.status_code == 409
    assert f"permission to run {said}" in refused.json()["error"]


def test_what_a_run_imports_needs_a_permission(guest: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bool] = []
    monkeypatch.setattr(Resumer, "start", lambda _self, _folder, allow_import: started.append(allow_import))
    make_run(root, "own", evaluate=f"{root / 'mine.py'}:score")
    refused = guest.post("/api/runs/own/resume", headers=SAME)
    assert refused.status_code == 409
    assert f"permission to run {root / 'mine.py'}" in refused.json()["error"]
    assert guest.post("/api/runs/own/resume?allow_import=true", headers=SAME).status_code == 200
    assert started == [True]


@pytest.mark.parametrize("space", ['choices:{"a": [1, 2]}', "choices:/tmp/space.json", "width:resnet20", "here:f-01"])
def test_what_a_run_does_not_import_is_not_said(guest: TestClient, root: Path, space: str) -> None:
    make_run(root, "own", space=space, evaluate="ask-and-tell", augment="crop=4,flip")
    told = news(guest.get("/api/stream", params={"run": "own"}).text)["run"]
    assert told["imports"] == []


def test_a_taken_port_and_a_folder_that_is_none(tmp_path: Path) -> None:
    with server.listening(0) as taken:
        number = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(InputError, match=rf"port {number} .*--port"):
            server.listening(number)
    with pytest.raises(InputError, match="ARCHWRIGHT_RUNS"):
        server.serve(tmp_path / "none", 0, print)


def test_nothing_was_resumed_here() -> None:
    assert not Resumer().starting("any")
    assert Resumer().failure("any") == ""


def test_without_the_extra_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from archwright.cli.main import cli

    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "archwright.report.server")
    error = CliRunner().invoke(cli, ["serve"], env={"ARCHWRIGHT_RUNS": str(tmp_path)}).exception
    assert isinstance(error, InputError)
    assert "pip install 'archwright[report]'" in str(error)


# --- notes, deletion, comparison ---


def test_a_note_is_kept_and_shown(guest: TestClient, root: Path) -> None:
    path = "/api/runs/stopped [one]/note"
    assert guest.post(path, content="<b>try</b> longer\nsecond line").status_code == 403  # not from our page
    assert guest.post(path, content="<b>try</b> longer\nsecond line", headers=SAME).status_code == 200
    assert Run.open(root / "stopped [one]").note == "<b>try</b> longer\nsecond line\n"
    assert overview(root)["runs"][0]["note"].startswith("<b>try</b>")
    page = guest.get("/runs/stopped [one]/report.html").text
    assert "&lt;b&gt;try&lt;/b&gt; longer" in page
    assert guest.post(path, content="x" * 50_000, headers=SAME).status_code == 409
    assert guest.post(path, content=" ", headers=SAME).status_code == 200
    assert not (root / "stopped [one]" / "note.txt").exists()


def test_a_run_is_deleted_unless_it_works(guest: TestClient, root: Path) -> None:
    path = "/api/runs/stopped [one]/delete"
    assert guest.post(path).status_code == 403
    with Run.open(root / "stopped [one]").locked():
        answer = guest.post(path, headers=SAME)
        assert answer.status_code == 409
    assert guest.post(path, headers=SAME).status_code == 200
    assert not (root / "stopped [one]").exists()
    assert guest.post("/api/runs/..%2Fsecret.txt/delete", headers=SAME).status_code == 404


def test_comparisons_name_what_is_missing(guest: TestClient, root: Path) -> None:
    assert "two to 12 runs" in guest.get("/compare?run=a").json()["error"]
    assert guest.get("/compare?run=a&run=b").status_code == 404
    make_run(root, "other")
    answer = guest.get("/compare", params=[("run", "other"), ("run", "stopped [one]")])
    assert answer.status_code == 409
    assert "finished runs" in answer.json()["error"]


def test_a_score_of_ones_own_has_no_percent(root: Path) -> None:
    from archwright.search.engine import search

    search("random", space='choices:{"x": [1, 2, 3]}', evaluate=len, evaluations=2, run=root / "own")
    (row,) = [one for one in overview(root)["runs"] if one["name"] == "own"]
    assert row["result"] == "1"
