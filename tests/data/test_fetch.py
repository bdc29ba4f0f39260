"""Downloads from a real HTTP server on the loopback interface that misbehaves on request."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedcompass.data import sources
from fedcompass.data.fetch import fetch
from fedcompass.data.sources import Source, SourceFile
from fedcompass.errors import DataError, SettingsError

CONTENT = bytes(i * i % 251 for i in range(700_000))
MD5 = hashlib.md5(CONTENT).hexdigest()


@dataclass
class Server:
    """What the server serves, how it misbehaves, and what it was asked."""

    url: str = ""
    content: bytes = CONTENT
    honours_range: bool = True
    cut_at: list[int] = field(default_factory=list)  # per request: bytes after which it hangs up
    status: int = 200
    asked: list[tuple[str, str | None]] = field(default_factory=list)


def handler_for(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            server.asked.append((self.path, wanted))
            if server.status != 200:
                self.send_error(server.status)
                return
            start = self._start(wanted)
            if start > len(server.content):
                self.send_error(416)
                return
            body = server.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            if start:
                end = len(server.content)
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
            self.end_headers()
            self.wfile.write(body[: server.cut_at.pop(0)] if server.cut_at else body)

        def _start(self, wanted: str | None) -> int:
            if wanted is None or not server.honours_range:
                return 0
            return int(wanted.removeprefix("bytes=").removesuffix("-"))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(state))
    state.url = f"http://127.0.0.1:{listener.server_port}/data/"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    listener.shutdown()
    thread.join()
    listener.server_close()


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sources.SOURCES, "toy", toy_source(()))


def toy_source(mirrors: tuple[str, ...]) -> Source:
    return Source(
        name="toy",
        title="a toy",
        files=(SourceFile("toy.bin", MD5),),
        mirrors=mirrors,
        folders=("toy",),
        classes=2,
        mean=(),
        std=(),
        licence="none",
    )


def test_a_file_arrives_whole_with_its_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    paths = fetch("toy", tmp_path, base_url=server.url, progress=lambda *told: seen.append(told))
    assert paths == [tmp_path / "toy" / "toy.bin"]
    assert paths[0].read_bytes() == CONTENT
    assert seen[0] == ("toy.bin", 0, len(CONTENT))
    assert seen[-1] == ("toy.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert list((tmp_path / "toy").iterdir()) == paths
    assert server.asked == [("/data/toy.bin", None)]


def test_a_file_that_is_there_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    fetch("toy", tmp_path, base_url=server.url)
    server.status = 500
    assert fetch("toy", tmp_path, base_url=server.url) == [tmp_path / "toy" / "toy.bin"]


def test_a_damaged_file_that_is_there_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.bin").write_bytes(b"damaged")
    [path] = fetch("toy", tmp_path, base_url=server.url)
    assert path.read_bytes() == CONTENT


def test_a_broken_connection_is_resumed_at_once(server: Server, tmp_path: Path) -> None:
    server.cut_at = [300_000, 200_000]
    [path] = fetch("toy", tmp_path, base_url=server.url)
    assert path.read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-", "bytes=500000-"]


def test_a_download_that_was_given_up_is_resumed_by_the_next(
    server: Server, tmp_path: Path
) -> None:
    server.cut_at = [100_000, 100_000, 100_000]
    with pytest.raises(DataError, match=r"broke off: 300000 of 700000 bytes .*again to resume"):
        fetch("toy", tmp_path, base_url=server.url)
    assert (tmp_path / "toy" / "toy.bin.part").stat().st_size == 300_000
    assert not (tmp_path / "toy" / "toy.bin").exists()
    [path] = fetch("toy", tmp_path, base_url=server.url)
    assert path.read_bytes() == CONTENT
    assert server.asked[-1] == ("/data/toy.bin", "bytes=300000-")


def test_a_server_that_ignores_range_starts_the_file_anew(server: Server, tmp_path: Path) -> None:
    server.honours_range = False
    server.cut_at = [300_000]
    [path] = fetch("toy", tmp_path, base_url=server.url)
    assert path.read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-"]


@pytest.mark.parametrize("leftover", [b"not its beginning", b"x" * 800_000])
def test_a_part_that_is_not_the_files_beginning_is_thrown_away(
    server: Server, tmp_path: Path, leftover: bytes
) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.bin.part").write_bytes(leftover)
    [path] = fetch("toy", tmp_path, base_url=server.url)
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_one_line_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.content = b"something else"
    with pytest.raises(DataError) as caught:
        fetch("toy", tmp_path, base_url=server.url)
    md5 = hashlib.md5(server.content).hexdigest()
    assert str(caught.value) == (
        f"cannot fetch toy: {server.url}toy.bin has md5 {md5}, published is {MD5}, "
        "so it was removed"
    )
    assert list((tmp_path / "toy").iterdir()) == []


def test_a_mirror_without_the_file_gives_way_to_the_next(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = Server(status=404)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(absent))
    absent.url = f"http://127.0.0.1:{listener.server_port}/"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setitem(sources.SOURCES, "toy", toy_source((absent.url, server.url)))
    [path] = fetch("toy", tmp_path)
    assert path.read_bytes() == CONTENT
    assert len(absent.asked) == 1
    server.status = 503
    path.unlink()
    with pytest.raises(DataError, match=r"answered 404 Not Found; .*answered 503"):
        fetch("toy", tmp_path)
    listener.shutdown()
    thread.join()
    listener.server_close()


def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"http://127.0.0.1:9/toy.bin broke off: .*refused"):
        fetch("toy", tmp_path, base_url="http://127.0.0.1:9")


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not an address: unknown url type"):
        fetch("toy", tmp_path, base_url="nonsense")


def test_a_folder_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*toy: File exists"):
        fetch("toy", tmp_path, base_url=server.url)


def test_downloads_go_to_the_cache_folder_by_default(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch("toy", base_url=server.url) == [tmp_path / "fedcompass" / "toy" / "toy.bin"]


def test_the_bundled_dataset_needs_no_download() -> None:
    with pytest.raises(SettingsError, match="'mnist-mini' is part of fedcompass; there is nothing"):
        fetch("mnist-mini")


def test_every_published_file_has_a_checksum_and_a_mirror() -> None:
    for known in (sources.MNIST, sources.FASHION_MNIST, sources.CIFAR10):
        assert all(mirror.endswith("/") for mirror in known.mirrors)
        assert len(known.mirrors) >= 2
        assert all(len(file.md5) == 32 for file in known.files)
