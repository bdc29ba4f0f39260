"""The `fedcompass data` commands, as a user sees them; downloads come from a local server."""

import functools
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import Result
from tests.child_processes import PATIENCE, started

from fedcompass.data import catalogue, sources
from fedcompass.data.sources import Source, SourceFile
from fedcompass.errors import DataError, SettingsError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app

BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"
CONTENT = bytes(i * i % 251 for i in range(700_000))

MNIST_MINI = """\
mnist-mini: part of fedcompass, checked
10000 training and 2000 test samples, 1x28x28 uint8, 10 classes

class  training  test
    0       987   196  ##########################
    1      1124   227  ##############################
"""


def data(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(app, ["data", *arguments], catch_exceptions=False)


@pytest.fixture(scope="session")  # before a test changes where data are looked for
def real_mnist() -> Path:
    given = os.environ.get("FEDCOMPASS_DATA")
    folder = (Path(given) if given else BESIDE_THE_REPOSITORY) / "mnist"
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no other place where a dataset could be."""
    monkeypatch.delenv("FEDCOMPASS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedcompass"


def serve(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listener.server_port}/"
    listener.shutdown()
    thread.join()
    listener.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def mirror(real_mnist: Path) -> Iterator[str]:
    """A server that holds MNIST's published files."""
    yield from serve(functools.partial(Quiet, directory=str(real_mnist)))


@pytest.fixture
def toy_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that holds a small dataset of one file, and the dataset known by name."""
    monkeypatch.setitem(sources.SOURCES, "toy", toy())
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "toy.bin").write_bytes(CONTENT)
    yield from serve(functools.partial(Quiet, directory=str(tmp_path / "mirror")))


def toy() -> Source:
    md5 = hashlib.md5(CONTENT).hexdigest()
    return Source("toy", "a toy", (SourceFile("toy.bin", md5),), (), ("toy",), 2, (), (), "none")


def places(*arguments: str) -> dict[str, str]:
    """What the list says about each dataset: its size and where it is."""
    lines = data("list", *arguments).output.splitlines()
    assert lines[0].split() == ["name", "size", "where"]
    return {
        name: " ".join(rest)
        for name, *rest in (line.split() for line in lines[1 : lines.index("")])
    }


def test_the_list_says_what_is_where_and_what_to_do(cache: Path) -> None:
    assert places() == {
        "mnist-mini": "1.9 MB part of fedcompass",
        "mnist": "- not found",
        "fashion-mnist": "- not found",
        "cifar10": "- not found",
    }
    output = data("list").output
    assert f"\nlooked in {cache}\n" in output
    assert "`fedcompass data fetch NAME` downloads one" in output


def test_the_list_finds_what_loading_finds(cache: Path, real_mnist: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "raw").mkdir(parents=True)
    for file in real_mnist.glob("*.gz"):
        (root / "raw" / file.name).symlink_to(file)
    found = places("--data-root", str(root))
    assert found["mnist"] == f"11.6 MB {root / 'raw'}"
    assert found["fashion-mnist"] == "- not found"  # the same file names, another content
    assert len(catalogue.load("mnist", root).train_targets) == 60_000
    (root / "raw" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert places("--data-root", str(root))["mnist"] == "- not found"


def test_cifar_is_listed_as_a_folder_or_as_an_archive(cache: Path, tmp_path: Path) -> None:
    archive = tmp_path / "root" / "cifar10" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(bytes(2_000_000))
    assert places("--data-root", str(tmp_path / "root"))["cifar10"] == f"2.0 MB {archive.parent}"
    batches = archive.parent / "cifar-10-batches-bin"
    batches.mkdir()
    (batches / "data_batch_1.bin").write_bytes(bytes(3_000_000))
    assert places("--data-root", str(tmp_path / "root"))["cifar10"] == f"3.0 MB {batches}"


def test_a_sound_dataset_is_counted_class_by_class() -> None:
    result = data("check", "mnist-mini")
    assert result.output.startswith(MNIST_MINI)
    assert result.output.splitlines()[-1].split() == ["all", "10000", "2000"]


def test_a_dataset_that_is_nowhere_is_one_line_that_says_what_to_do(cache: Path) -> None:
    with pytest.raises(DataError, match=r"'mnist' was not found: .*`fedcompass data fetch mnist`"):
        data("check", "mnist")
    with pytest.raises(SettingsError, match="the catalogue has no dataset 'mnits'"):
        data("check", "mnits")


def test_what_was_fetched_is_found_and_sound(cache: Path, mirror: str) -> None:
    result = data("fetch", "mnist", "--base-url", mirror)
    assert result.stdout == (
        f"mnist: 4 files, 11.6 MB, in {cache / 'mnist'}; checksums as published\n"
    )
    assert result.stderr.splitlines() == [
        "train-images-idx3-ubyte.gz: 9.9 MB",
        "train-labels-idx1-ubyte.gz: 28.9 kB",
        "t10k-images-idx3-ubyte.gz: 1.6 MB",
        "t10k-labels-idx1-ubyte.gz: 4.5 kB",
    ]
    assert data("check", "mnist").output.startswith(f"mnist: {cache / 'mnist'}, checked\n60000")


def test_a_folder_of_your_own_comes_with_how_to_use_it(
    cache: Path, toy_mirror: str, tmp_path: Path
) -> None:
    result = data("fetch", "toy", "--base-url", toy_mirror, "--to", str(tmp_path / "mine"))
    assert result.stdout == (
        f"toy: 1 file, 0.7 MB, in {tmp_path / 'mine' / 'toy'}; checksum as published\n"
        f"It is found with --data-root {tmp_path / 'mine'} "
        f"or FEDCOMPASS_DATA={tmp_path / 'mine'}\n"
    )
    assert (tmp_path / "mine" / "toy" / "toy.bin").read_bytes() == CONTENT


def test_a_terminal_gets_a_bar(
    cache: Path,
    toy_mirror: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    app(["data", "fetch", "toy", "--base-url", toy_mirror], standalone_mode=False)
    shown = capsys.readouterr().err
    assert "toy.bin" in shown
    assert "700.0/700.0 kB" in shown


def test_what_cannot_be_fetched_is_one_line(cache: Path) -> None:
    with pytest.raises(DataError, match=r"cannot fetch mnist: http://127.0.0.1:9/.*refused"):
        data("fetch", "mnist", "--base-url", "http://127.0.0.1:9")
    with pytest.raises(SettingsError, match="'mnist-mini' is part of fedcompass; there is nothing"):
        data("fetch", "mnist-mini")


def test_ctrl_c_keeps_what_has_arrived_and_says_how_to_go_on(
    tmp_path: Path, toy_mirror: str
) -> None:
    stopped = threading.Event()

    class Stalling(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:300_000])
            stopped.wait(PATIENCE)

    md5 = hashlib.md5(CONTENT).hexdigest()
    program = (
        "from fedcompass.data.sources import SOURCES, Source, SourceFile\n"
        f"files = (SourceFile('toy.bin', {md5!r}),)\n"
        "SOURCES['toy'] = Source('toy', '', files, (), ('toy',), 2, (), (), '')\n"
        "from fedcompass.cli import main\n"
        "main()\n"
    )
    part = tmp_path / "my data" / "toy" / "toy.bin.part"
    for url in serve(Stalling):
        arguments = ["data", "fetch", "toy", "--to", str(tmp_path / "my data"), "--base-url", url]
        command = [sys.executable, "-c", program, *arguments]
        with started(command, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + PATIENCE
            while not (part.is_file() and part.stat().st_size) and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=PATIENCE)
        stopped.set()
    assert process.returncode == 130
    assert told == (
        "stopped; what has arrived is kept. To go on: "
        f"fedcompass data fetch toy --to '{tmp_path}/my data' --base-url {url}\n"
    )
    kept = part.read_bytes()
    assert kept
    assert CONTENT.startswith(kept)
    data("fetch", "toy", "--to", str(tmp_path / "my data"), "--base-url", toy_mirror)
    assert part.with_suffix("").read_bytes() == CONTENT


def test_the_list_needs_no_torch() -> None:
    program = (
        "import sys\n"
        "from fedcompass.cli import app\n"
        "app(['data', 'list'], standalone_mode=False)\n"
        "print('torch' in sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr == "False\n"
