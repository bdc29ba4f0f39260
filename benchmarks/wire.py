"""The wire alone: mutual TLS on loopback, durable at both ends, no scheduler, worker or merge.

    python -m benchmarks.wire              # models of 2.3, 45 and 400 MB
    python -m benchmarks.wire --toy        # tiny sizes, to see that it works

A task is: the server writes a new model, a site in a process of its own fetches it, answers with as
many bytes as soon as it has them, keeps the answer on its disk, and sends it; the server has the
update, event and receipt on its disk. `plain copy` moves the same bytes both ways through one
unencrypted TCP connection, from disk to disk, in the same run: what loopback and disk cost alone.
"""

import argparse
import asyncio
import os
import secrets
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.deployment.wire.loopback_wire import LAYOUT, Papers, give, link_of

from benchmarks.resident import resident
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.answers import Received, Verdict
from fedcompass.deployment.wire.connections import listen
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.service import FederationService
from fedcompass.deployment.wire.site_roster import RosterFile
from fedcompass.runs.files import LineFile

SIZES = {"2.3 MB": (2_328_104, 20), "45 MB": (45_000_000, 4), "400 MB": (400_000_000, 3)}
TOY = {"0.1 MB": (100_000, 2)}
PIECE = 1 << 20


def pieces_of(size: int, first: bytes) -> list[memoryview]:
    """So many bytes that begin with `first`."""
    whole = memoryview(first + bytes(PIECE - len(first)))
    full = [whole] + [memoryview(bytes(PIECE))] * (size // PIECE)
    return [*full[: size // PIECE], full[0][: size % PIECE]]


async def attend(folder: Path, address: str) -> None:
    """The site's process."""

    async def train(task: pb.Task, _: Path, payload: Path) -> pb.Answer:
        with payload.open("wb") as file:
            file.writelines(pieces_of(task.model_bytes, task.id.encode()))
        return pb.Answer(steps_done=task.steps, samples=1)

    await link_of(Papers(folder / "papers"), "site", folder / "site", address, train).run()


class Bench:
    """The server's side: gives tasks, and has each answer on disk before its receipt."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.papers = folder, Papers(folder / "papers", "site")
        self.journal = LineFile(folder / "journal.jsonl", durable=True)
        self.accepted = asyncio.Event()
        self.service = FederationService(
            folder / "server", RosterFile(self.papers.roster), LAYOUT, self.receive
        )

    async def receive(self, received: Received) -> Verdict:
        await asyncio.to_thread(self.keep, received)
        self.accepted.set()
        return Verdict(True)

    def keep(self, received: Received) -> None:
        assert received.payload is not None, received.problem or received.answer.error
        with received.payload.open("rb") as file:
            os.fsync(file.fileno())
        received.payload.replace(self.folder / "update")
        self.journal.append([{"task": received.task.number}])

    async def task(self, number: int, size: int) -> float:
        began = time.perf_counter()
        self.accepted.clear()
        pieces = pieces_of(size, secrets.token_bytes(16))
        published = await asyncio.to_thread(self.service.publish, pieces)
        give(self.service, "site", number, published, payload_bytes=size)
        await self.accepted.wait()
        while self.service.open_tasks("site"):  # until its receipt is on disk
            await asyncio.sleep(0.001)
        took = time.perf_counter() - began
        self.service.keep_models(set())
        return took


async def measure(folder: Path, sizes: dict[str, tuple[int, int]]) -> None:
    bench = Bench(folder)
    server, port = await listen(
        bench.service.handler(), "127.0.0.1:0", bench.papers.server, Limits()
    )
    command = [sys.executable, "-m", "benchmarks.wire", "--attend", f"127.0.0.1:{port}"]
    site = await asyncio.create_subprocess_exec(*command, "--folder", str(folder))
    try:
        async with asyncio.timeout(60):
            while not bench.service.sites:
                await asyncio.sleep(0.05)
        number = 0
        print("   model  tasks  median s  worst s  CPU s  plain copy s")
        for name, (size, repeats) in sizes.items():
            await bench.task(number := number + 1, size)  # warm
            took, used = [], cpu_seconds(site.pid)
            for _ in range(repeats):
                async with asyncio.timeout(120):
                    took.append(await bench.task(number := number + 1, size))
            used = (cpu_seconds(site.pid) - used) / repeats
            plain = await asyncio.to_thread(plain_copy, folder, size)
            middle = statistics.median(took)
            print(
                f"{name:>8} {repeats:6} {middle:9.3f} {max(took):8.3f} {used:6.3f} {plain:13.3f}",
                flush=True,
            )
        most, site_used = resident("VmHWM") / 2**20, resident("VmRSS", site.pid) / 2**20
        print(f"memory: server at most {most:.0f} MB, site now {site_used:.0f} MB")
    finally:
        site.terminate()
        await site.wait()
        await server.stop(0.1)
        await bench.service.close()


def cpu_seconds(site: int) -> float:
    """Of both processes since they started."""
    fields = Path(f"/proc/{site}/stat").read_text().rsplit(")")[-1].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plain_copy(folder: Path, size: int) -> float:
    """Seconds for so many bytes both ways over plain TCP, from disk to disk."""
    began = time.perf_counter()
    for name in ("down", "up"):
        (folder / "source").write_bytes(bytes(size))
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=_serve_file, args=(listener, folder / "source"))
        thread.start()
        with (
            socket.create_connection(listener.getsockname()) as connection,
            (folder / name).open("wb") as file,
        ):
            while piece := connection.recv(PIECE):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        thread.join()
        listener.close()
    return time.perf_counter() - began


def _serve_file(listener: socket.socket, path: Path) -> None:
    connection, _ = listener.accept()
    with connection, path.open("rb") as file:
        connection.sendfile(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="tiny sizes")
    parser.add_argument("--largest", type=float, default=400, help="leave out models of more MB")
    parser.add_argument("--attend", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attend:
        asyncio.run(attend(given.folder, given.attend))
        return
    sizes = TOY if given.toy else {k: v for k, v in SIZES.items() if v[0] <= given.largest * 1e6}
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), sizes))


if __name__ == "__main__":
    main()
