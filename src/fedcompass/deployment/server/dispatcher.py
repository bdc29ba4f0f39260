"""Messages on their way: tasks to be pushed, and those that were and await their reply."""

from collections.abc import Collection
from dataclasses import dataclass

from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.server.membership import Membership, Peer
from fedcompass.deployment.wire.messages import query_facts, train_facts
from fedcompass.deployment.wire.transport import MessageId, NodeId, Reply, Transport
from fedcompass.scheduling.commands import StartTraining
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, TaskId

__all__ = ["PROBE", "Dispatcher", "Sent"]

PROBE: TaskId = 0
"""The task of a site that answers no queries: one step, to learn its number of samples."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was pushed."""

    node: NodeId
    at: Seconds
    client: ClientId | None = None  # None: a question who it is
    task: TaskId | None = None  # None: a query


class Dispatcher:
    """Pushes tasks and pulls replies.

    Args:
        transport: carries them.
        run: the run's name.
        ttl: how long a message may be answered.
    """

    def __init__(self, transport: Transport, run: str, ttl: Seconds) -> None:
        self.sent: dict[MessageId, Sent] = {}  # not answered yet
        self._transport, self._run, self._ttl = transport, run, ttl
        self._waiting: dict[ClientId, tuple[StartTraining, FlatState]] = {}  # not pushed yet
        self._not_before: dict[ClientId, Seconds] = {}

    def give(self, order: StartTraining, start: FlatState) -> None:
        """Have an order pushed when its client can be reached; it replaces the one before."""
        self._waiting[order.client] = (order, start)

    def hold(self, client: ClientId, until: Seconds) -> None:
        """Push nothing to a client before this."""
        self._not_before[client] = until

    def keep_only(self, tasks: Collection[TaskId]) -> None:
        """Forget orders that are outstanding no more."""
        self._waiting = {c: w for c, w in self._waiting.items() if w[0].task in tasks}

    def push_due(self, now: Seconds, membership: Membership) -> None:
        """Push the orders whose client is connected."""
        for client, (order, start) in list(self._waiting.items()):
            peer = membership.of(client)
            if peer is not None and self._not_before.get(client, 0.0) <= now:
                self._push(now, order, start, peer)

    def _push(self, now: Seconds, order: StartTraining, start: FlatState, peer: Peer) -> None:
        facts = train_facts(
            steps=order.steps,
            task=order.task,
            version=order.version,
            run=self._run,
            refused=peer.refused,
        )
        message = self._transport.push(peer.node, "train", facts, start, self._ttl)
        if message is None:
            return  # it left this moment: it stays in the queue until it returns or is given up
        peer.refused = None
        self.sent[message] = Sent(peer.node, now, order.client, order.task)
        del self._waiting[order.client]
        self._not_before.pop(order.client, None)

    def ask(self, now: Seconds, peer: Peer) -> None:
        """Ask a peer who it is."""
        facts = query_facts(self._run)
        self._asked(now, peer, self._transport.push(peer.node, "query", facts, None, self._ttl))

    def probe(self, now: Seconds, peer: Peer, version: ModelVersion, model: FlatState) -> None:
        """Ask a peer that answers no queries through a task of one step."""
        facts = train_facts(steps=1, task=PROBE, version=version, run=self._run)
        message = self._transport.push(peer.node, "train", facts, model, self._ttl)
        self._asked(now, peer, message, PROBE)

    def _asked(
        self, now: Seconds, peer: Peer, message: MessageId | None, task: TaskId | None = None
    ) -> None:
        peer.asked, peer.asked_at = message, now
        if message is not None:
            self.sent[message] = Sent(peer.node, now, task=task)

    def pull(self) -> list[tuple[Reply, Sent]]:
        """The replies that are here with what they answer; others are none of ours."""
        replies = self._transport.pull(list(self.sent))
        return [(r, self.sent.pop(r.message)) for r in replies if r.message in self.sent]

    def overdue(self, before: Seconds) -> list[Sent]:
        """Messages pushed earlier than this and not answered."""
        return [sent for sent in self.sent.values() if sent.at < before]

    def forget(self, before: Seconds) -> None:
        """Stop asking for replies to messages that have expired."""
        self.sent = {m: sent for m, sent in self.sent.items() if sent.at >= before}
