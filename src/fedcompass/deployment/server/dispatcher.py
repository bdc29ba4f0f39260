"""Tasks on their way: those to be pushed, and those that were and await their reply."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.server.membership import Membership, Peer
from fedcompass.deployment.wire.transport import Assignment, MessageId, NodeId, Reply, Transport
from fedcompass.scheduling.commands import StartTraining
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, TaskId

__all__ = ["Dispatcher", "Sent"]

_PROBE: TaskId = 0  # one step, to learn the samples of a site that tells them only with an answer


@dataclass(frozen=True, slots=True)
class Sent:
    """A task that was pushed."""

    node: NodeId
    at: Seconds
    command: StartTraining | None  # None: a probe


class Dispatcher:
    """Pushes tasks and pulls replies."""

    def __init__(self, transport: Transport, run: str) -> None:
        self.sent: dict[MessageId, Sent] = {}  # not answered yet
        self._transport, self._run = transport, run
        self._waiting: dict[ClientId, tuple[StartTraining, FlatState]] = {}  # not pushed yet
        self._not_before: dict[ClientId, Seconds] = {}

    def give(self, command: StartTraining, start: FlatState) -> None:
        """Have a task pushed when its client can be reached; it replaces the one before."""
        self._waiting[command.client] = (command, start)

    def hold(self, client: ClientId, until: Seconds) -> None:
        """Push nothing to a client before this."""
        self._not_before[client] = until

    def keep_only(self, tasks: Collection[TaskId]) -> None:
        """Forget tasks that are outstanding no more."""
        self._waiting = {c: w for c, w in self._waiting.items() if w[0].task in tasks}

    def push_due(
        self, now: Seconds, membership: Membership, must_wait: Callable[[ClientId], bool]
    ) -> None:
        """Push the tasks whose client is connected and need not wait."""
        for client, (command, start) in list(self._waiting.items()):
            peer, is_held = membership.of(client), self._not_before.get(client, 0.0) > now
            if peer is not None and not is_held and not must_wait(client):
                self._push(now, command, start, peer)

    def _push(self, now: Seconds, command: StartTraining, start: FlatState, peer: Peer) -> None:
        assignment = Assignment(
            task=command.task,
            steps=command.steps,
            version=command.version,
            run=self._run,
            model=start,
            refused=peer.refused,
            steps_before=command.steps_before,
        )
        message = self._transport.push(peer.node, assignment)
        if message is None:
            return  # it left this moment: it stays in the queue until it returns or is given up
        peer.refused = None
        self.sent[message] = Sent(peer.node, now, command)
        del self._waiting[command.client]
        self._not_before.pop(command.client, None)

    def probe(self, now: Seconds, peer: Peer, version: ModelVersion, model: FlatState) -> None:
        """Ask a peer who it is through a task of one step."""
        assignment = Assignment(task=_PROBE, steps=1, version=version, run=self._run, model=model)
        peer.asked, peer.asked_at = self._transport.push(peer.node, assignment), now
        if peer.asked is not None:
            self.sent[peer.asked] = Sent(peer.node, now, None)

    def pull(self) -> list[tuple[Reply, Sent]]:
        """The replies that are here with what they answer; others are none of ours."""
        replies = self._transport.pull(list(self.sent))
        return [(r, self.sent.pop(r.message)) for r in replies if r.message in self.sent]

    def excuse(self, seconds: Seconds) -> None:
        """Nobody took replies in meanwhile: it is no delay."""
        self.sent = {m: replace(sent, at=sent.at + seconds) for m, sent in self.sent.items()}

    def overdue(self, before: Seconds) -> list[Sent]:
        """Tasks pushed earlier than this and not answered."""
        return [sent for sent in self.sent.values() if sent.at < before]

    def forget(self, before: Seconds) -> None:
        """Stop asking for replies to tasks that have expired."""
        self.sent = {m: sent for m, sent in self.sent.items() if sent.at >= before}
