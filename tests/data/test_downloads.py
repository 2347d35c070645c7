from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from archwright.data.downloads import CACHE_VARIABLE, RemoteFile, default_cache, fetch
from archwright.errors import InputError

CONTENT = b"published" * 100_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A web server on this machine that offers one file."""
    offered = tmp_path / "offered"
    offered.mkdir()
    (offered / "file.bin").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(offered))) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_download_arrives_whole_and_is_reused(server: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    file = RemoteFile("kept.bin", f"{server}/file.bin", hashlib.md5(CONTENT).hexdigest())
    path = fetch(file, cache)
    assert path == cache / "kept.bin"
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in cache.iterdir()] == ["kept.bin"]
    gone = RemoteFile(file.name, f"{server}/absent", file.md5)
    assert fetch(gone, cache) == path


@pytest.mark.parametrize(("name", "md5"), [("file.bin", "0" * 32), ("absent", "0" * 32)])
def test_failed_download_leaves_nothing_behind(server: str, tmp_path: Path, name: str, md5: str) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(InputError, match="by hand"):
        fetch(RemoteFile("kept.bin", f"{server}/{name}", md5), cache)
    assert list(cache.iterdir()) == []


def test_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv(CACHE_VARIABLE)
    assert default_cache().name == "archwright"


class CutOff(SimpleHTTPRequestHandler):
    """Serves byte ranges; the first answer breaks off after a third."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Range"))
        start = int((self.headers.get("Range") or "bytes=0-").split("=")[1].rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        rest = CONTENT[start:]
        self.wfile.write(rest[: len(CONTENT) // 3] if len(self.asked) == 1 else rest)


def test_a_download_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    CutOff.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), CutOff) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{http.server_port}/file"
            file = RemoteFile("kept.bin", url, hashlib.md5(CONTENT).hexdigest())
            with pytest.raises(InputError, match="goes on where it stopped"):
                fetch(file, tmp_path)
            assert fetch(file, tmp_path).read_bytes() == CONTENT
        finally:
            http.shutdown()
            thread.join()
    first, second = CutOff.asked
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= len(CONTENT) // 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.bin"]
