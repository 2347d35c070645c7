from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from archwright.data.downloads import CACHE_VARIABLE, RemoteFile, default_cache, fetch
from archwright.errors import InputError

CONTENT = b"published" * 1000


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
