"""Sites and a network of our own making, in virtual time: fast, and as faulty as a test wants."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.server.background_evaluation import Evaluate
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.wire.payloads import PayloadFile, payload_pieces
from fedcompass.deployment.wire.transport import (
    Assignment,
    Greeting,
    MessageId,
    NodeId,
    Remark,
    Reply,
)
from fedcompass.errors import LayoutMismatch


def small_model() -> nn.Module:
    """Something of every segment: parameters, float buffers and an integer buffer."""
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


with torch.random.fork_rng():
    torch.manual_seed(3)
    MODULE = small_model()
LAYOUT = Layout.of(MODULE)
INITIAL = LAYOUT.state_of(MODULE)


def trained(start: FlatState, task: int, steps: int) -> FlatState:
    """What a site's training makes of a model: the same for the same task, wherever it runs."""
    end = start.clone()
    end.trainable.mul_(1 - 0.001 * steps).add_(0.01 * (task % 7))
    end.averaged.add_(0.1)
    end.counted.add_(steps)
    return end


@dataclass(frozen=True)
class SentModel:
    """A payload as a site sends it; with a folder, as a file that the server has received."""

    end: FlatState
    size: int = 100
    problem: str | None = None
    folder: Path | None = None

    @property
    def file(self) -> PayloadFile | None:
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        path, content = self.folder / token_hex(8), b"".join(self._pieces())
        path.write_bytes(content)
        return PayloadFile(path, "model", hashlib.sha256(content).hexdigest())

    def _pieces(self) -> Iterator[memoryview]:
        return payload_pieces(LAYOUT, "model", self.end)

    def state(self, layout: Layout, start: FlatState) -> FlatState:
        if self.problem is not None:
            raise LayoutMismatch(self.problem)
        return self.end.clone()


@dataclass
class Clock:
    """Virtual seconds; pausing makes them pass."""

    now: float = 1000.0  # a monotonic clock starts anywhere

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += max(seconds, 1e-3)


@dataclass
class FakeSite:
    """A site with a pace; `spoil` changes or takes away its answers."""

    name: str | None
    samples: int = 10
    seconds_per_step: float = 0.1
    overhead: float = 0.5
    spoil: Callable[[Reply, int], Reply | None] | None = None  # (answer, number of this task)
    greets: bool = True  # else it says who it is with its first answer
    tasks: list[tuple[str, int]] = field(default_factory=list)  # (run, task), every one it got
    told: list[Assignment] = field(default_factory=list)
    remembered: tuple[tuple[str, int], Reply] | None = None
    uploads: Path | None = None  # where its answers lie as files; None: they come in memory

    def greeting(self) -> Greeting:
        return Greeting(self.name, self.samples)

    def train(
        self, message: MessageId, node: NodeId, given: Assignment
    ) -> tuple[float, Reply | None]:
        key = (given.run, given.task)
        self.tasks.append(key)
        self.told.append(given)
        if self.remembered is not None and self.remembered[0] == key and self.spoil is None:
            return 0.01, replace(self.remembered[1], message=message)
        end = trained(given.model, given.task, given.steps)
        seconds = given.steps * self.seconds_per_step
        reply = Reply(
            message=message,
            node=node,
            greeting=Greeting(None if self.greets else self.name, self.samples),
            payload=SentModel(end, folder=self.uploads),
            task=given.task if self.greets else None,
            version=given.version if self.greets else None,
            steps_done=given.steps,
            seconds=seconds,
        )
        self.remembered = (key, reply)
        answer = self.spoil(reply, len(self.tasks)) if self.spoil else reply
        return self.overhead + seconds, answer


class FakeNetwork:
    """A `Transport` in virtual time."""

    def __init__(self, clock: Clock, sites: dict[NodeId, FakeSite]) -> None:
        self.clock, self.sites = clock, sites
        self.connected: set[NodeId] = set(sites)
        self.on_its_way: list[tuple[float, int, Reply]] = []
        self.departed: list[Reply] = []
        self.remarked: list[Remark] = []
        self.revoked: set[NodeId] = set()
        self._count = 0

    def nodes(self) -> set[NodeId]:
        return set(self.connected)

    def is_revoked(self, node: NodeId) -> bool:
        return node in self.revoked

    def confirm(self, run: str, tasks: Collection[int]) -> None:
        pass

    def departures(self) -> list[Reply]:
        departed, self.departed = self.departed, []
        return departed

    def remarks(self) -> list[Remark]:
        remarked, self.remarked = self.remarked, []
        return remarked

    def greeting(self, node: NodeId) -> Greeting | None:
        return self.sites[node].greeting() if self.sites[node].greets else None

    def push(self, node: NodeId, assignment: Assignment) -> MessageId | None:
        if node not in self.connected:
            return None
        self._count += 1
        message = f"m{self._count}"
        delay, reply = self.sites[node].train(message, node, assignment)
        if reply is not None:
            self.on_its_way.append((self.clock.now + delay, self._count, reply))
        return message

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        here = sorted(entry[:2] for entry in self.on_its_way if entry[0] <= self.clock.now)
        arrived = {number for _, number in here}
        replies = {n: r for _, n, r in self.on_its_way if n in arrived and r.message in messages}
        self.on_its_way = [e for e in self.on_its_way if e[1] not in replies]
        return [replies[number] for _, number in here if number in replies]

    def restart(self) -> None:
        """The engine was restarted: what was on its way is gone, the sites are not."""
        self.on_its_way = []


def sites(
    *paces: float, overhead: float = 0.5, uploads: Path | None = None
) -> dict[NodeId, FakeSite]:
    """Sites site-1, site-2, … with these seconds per step, at nodes 101, 102, …"""
    return {
        101 + i: FakeSite(f"site-{i + 1}", 10 * (i + 1), pace, overhead, uploads=uploads)
        for i, pace in enumerate(paces)
    }


def settings(strategy: dict[str, Any] | None = None, **changes: Any) -> FederationSettings:
    table = strategy or {"name": "fedcompass", "min_steps": 2, "max_steps": 10}
    values: dict[str, Any] = {
        "strategy": table,
        "min_clients": 2,
        "max_updates": 6,
        "poll_interval": 0.1,
        **changes,
    }
    return FederationSettings(**values)


def federation(
    folder: Path,
    network: FakeNetwork,
    chosen: FederationSettings | None = None,
    *,
    resume: bool = False,
    evaluate: Evaluate | None = None,
    wall: Callable[[], float] = lambda: 1e9,
    spent: Path | None = None,
) -> Federation:
    return Federation(
        chosen or settings(),
        LAYOUT,
        INITIAL.clone(),
        network,
        folder,
        resume=resume,
        evaluate=evaluate,
        spent=spent,
        clock=network.clock,
        wall=wall,
        pause=network.clock.pause,
    )


def run_until(
    running: Federation, holds: Callable[[Federation], bool], most_steps: int = 5000
) -> None:
    """Step until something holds."""
    for _ in range(most_steps):
        if holds(running):
            return
        running.step()
        running._pause(running._until_next())
    raise AssertionError("it never came to that")
