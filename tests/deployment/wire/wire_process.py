"""A server or a site of the wire in a process of its own, to be killed.

    python -m tests.deployment.wire.wire_process server FOLDER PORT TASKS
    python -m tests.deployment.wire.wire_process site FOLDER PORT

The server gives the site "north" one task after the other and writes each accepted update's task
and digest to FOLDER/accepted.jsonl before its receipt. FOLDER/die-NAME makes it kill itself there,
once.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.deployment.wire.loopback_wire import LAYOUT, Papers, give, link_of

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.answers import Received, Verdict
from fedcompass.deployment.wire.connections import listen
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.service import FederationService
from fedcompass.deployment.wire.site_roster import RosterFile
from fedcompass.runs.files import LineFile

LIMITS = Limits(heartbeat=0.2, silence=3.0)
BYTES = 3_000_000


def maybe_die(folder: Path, name: str) -> None:
    """Kill this process if the test asked for it, once."""
    try:
        (folder / f"die-{name}").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def content(number: int) -> bytes:
    return number.to_bytes(8, "little") * (BYTES // 8)


async def serve(folder: Path, port: int, tasks: int) -> None:
    accepted = LineFile(folder / "accepted.jsonl", durable=True)
    arrived = asyncio.Event()

    async def receive(received: Received) -> Verdict:
        maybe_die(folder, "before-event")
        number = received.task.number
        if number not in {record["task"] for record in accepted.records()}:
            accepted.append([{"task": number, "digest": received.answer.digest}])
        maybe_die(folder, "after-event")
        arrived.set()
        return Verdict(True)

    papers = Papers(folder / "papers")
    service = FederationService(
        folder / "server", RosterFile(papers.roster), LAYOUT, receive, LIMITS
    )
    server, _ = await listen(service.handler(), f"127.0.0.1:{port}", papers.server, LIMITS)
    done = {record["task"] for record in accepted.records()}
    for number in range(1, tasks + 1):
        if number in done:
            continue
        arrived.clear()
        give(service, "north", number, service.publish([content(number)]), payload_bytes=BYTES)
        while number not in {record["task"] for record in accepted.records()}:
            await arrived.wait()  # an answer to an earlier one may come first, after a kill
            arrived.clear()
    while service.open_tasks("north"):
        await asyncio.sleep(0.01)
    await server.stop(0.5)  # time for the last receipt


async def attend(folder: Path, port: int) -> None:
    async def train(task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        assert model.read_bytes() == content(task.number)
        maybe_die(folder, "training")
        trained.append([{"task": task.number}])
        if (folder / "die-answered").exists():
            asyncio.get_running_loop().create_task(die_when_kept())
        payload.write_bytes(content(task.number))
        return pb.Answer(steps_done=task.steps, seconds=0.1, samples=1)

    async def die_when_kept() -> None:
        while not list((folder / "site" / "answers").glob("*.answer")):
            await asyncio.sleep(0)
        maybe_die(folder, "answered")

    trained = LineFile(folder / "trained.jsonl")
    papers, address = Papers(folder / "papers"), f"127.0.0.1:{port}"
    await link_of(papers, "north", folder / "site", address, train, limits=LIMITS).run()


if __name__ == "__main__":
    role, where, at, *rest = sys.argv[1:]
    if role == "server":
        asyncio.run(serve(Path(where), int(at), int(rest[0])))
    else:
        asyncio.run(attend(Path(where), int(at)))
