"""What becomes of a reply: an update, a refusal, a lost task, or a site that takes part."""

from fedcompass.aggregation import FlatState, RefusedUpdate
from fedcompass.coordinator import Order, Update
from fedcompass.deployment.backoff import Backoff
from fedcompass.deployment.server.dispatcher import Dispatcher, Sent
from fedcompass.deployment.server.durable_run import DurableRun
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.membership import Membership, Peer
from fedcompass.deployment.server.replies import (
    Greeting,
    TaskReport,
    read_greeting,
    read_spent,
    read_task_report,
)
from fedcompass.deployment.wire.messages import one_line
from fedcompass.deployment.wire.transport import Payload, Reply
from fedcompass.errors import LayoutMismatch
from fedcompass.scheduling.commands import StartTraining
from fedcompass.training.local import change_or_model
from fedcompass.vocabulary import ClientId, Refusal, Seconds

__all__ = ["Intake"]

_RETRY = Backoff(first=0.5, longest=30.0)  # seconds; for a site that failed


class Intake:
    """Turns replies into events, and sees to it that everybody connected takes part.

    Args:
        settings: how patient to be.
        run: gets the events.
        dispatcher: asks questions.
        membership: who is who.
        return_until: until when the members of a resumed run have time to connect again.
    """

    def __init__(
        self,
        settings: FederationSettings,
        run: DurableRun,
        dispatcher: Dispatcher,
        membership: Membership,
        return_until: Seconds,
    ) -> None:
        self._settings, self._run, self._dispatcher = settings, run, dispatcher
        self._membership = membership
        self._return_until = return_until
        self._returning = dict.fromkeys(run.coordinator.scheduler.roster.members)

    def ask(self, now: Seconds) -> None:
        """Ask those who they are that have not said so, and again those that did not answer."""
        for peer in self._membership.peers.values():
            if peer.asked is not None and now - peer.asked_at > self._settings.task_timeout:
                peer.asked = None
        for peer in self._membership.to_ask(now):
            self._dispatcher.ask(now, peer)
        self._dispatcher.forget(now - self._settings.ttl - self._settings.task_timeout)

    def not_returned(self, now: Seconds) -> list[ClientId]:
        """Members of a resumed run whose time to connect again is over."""
        if now < self._return_until:
            return []
        missing, self._returning = list(self._returning), {}
        return missing

    def overdue(self, now: Seconds) -> list[tuple[ClientId, str]]:
        """Clients that have kept their task for too long, and what to say about it."""
        found = []
        for sent in self._dispatcher.overdue(now - self._settings.task_timeout):
            if (order := self._outstanding(sent)) is not None:
                why = f"task {sent.task} is not answered after {now - sent.at:.0f} s (task_timeout)"
                found.append((order.client, why))
                self._give_up(now, self._membership.peers.get(sent.node))
        return found

    def take(self, now: Seconds, reply: Reply, sent: Sent) -> list[Order] | None:
        """Deal with a reply; None: nothing happened that a scheduler has to know."""
        peer = self._membership.peers.get(sent.node)
        if sent.client is None:
            return None if peer is None else self._greet(now, reply, sent, peer)
        if reply.facts.get("budget_spent") and reply.node == sent.node:
            return self._left(now, reply, sent.client, peer)
        order = self._outstanding(sent)
        if order is None:
            self._late(now, reply, sent, peer)
            return None
        if reply.node != sent.node:
            return self._failed(now, sent, peer, f"node {reply.node} answered in its place")
        if reply.error is not None:
            return self._failed(now, sent, peer, reply.error)
        return self._answer(now, reply, order, peer)

    def _outstanding(self, sent: Sent) -> StartTraining | None:
        """The order a message carries, if its answer still counts."""
        if sent.client is None:
            return None
        order = self._run.coordinator.scheduler.outstanding(sent.client)
        return order if order is not None and order.task == sent.task else None

    def _greet(self, now: Seconds, reply: Reply, sent: Sent, peer: Peer) -> list[Order] | None:
        if peer.asked != reply.message or peer.client is not None:
            return None
        peer.asked = None
        coordinator = self._run.coordinator
        if reply.error is not None and sent.task is None:  # perhaps it knows no queries
            self._dispatcher.probe(now, peer, coordinator.version, coordinator.snapshot())
            return None
        most = self._settings.max_samples
        greeting = read_greeting(reply.facts, most) if reply.error is None else reply.error
        if isinstance(greeting, Greeting):
            return self._admit(now, peer, greeting)
        peer.failures += 1
        self._give_up(now, peer)
        self._run.audit.say("turned away", now, node=peer.node, why=one_line(greeting))
        return None

    def _admit(self, now: Seconds, peer: Peer, greeting: Greeting) -> list[Order] | None:
        client = self._membership.identify(peer, greeting.site)
        members = self._run.coordinator.scheduler.roster.members
        returning = client in self._returning
        self._returning.pop(client, None)
        if returning and client in members and members[client].samples == greeting.samples:
            # The server restarted, not the site: it goes on with its task, its pace and its group.
            self._run.audit.say("returned", now, who=client, node=peer.node)
            return []
        return self._run.coordinator.join(now, client, greeting.samples, node=peer.node)

    def _answer(
        self, now: Seconds, reply: Reply, order: StartTraining, peer: Peer | None
    ) -> list[Order]:
        coordinator, payload = self._run.coordinator, reply.payload
        size, spent = 0 if payload is None else payload.size, read_spent(reply.facts)
        update = self._update(reply, order, spent.get("epsilon"))
        if isinstance(update, RefusedUpdate):
            receipt = coordinator.refuse(now, order.client, order.task, update, bytes=size)
        else:
            file = None if payload is None else payload.file
            privacy = {"privacy": spent} if spent else {}
            receipt = self._run.receive(now, update, file, bytes=size, **privacy)
        refused = receipt.refused
        if peer is not None and refused is None:
            peer.refused, peer.failures = None, 0
        elif peer is not None and refused is not None:
            peer.refused = f"{refused.reason.value}: {one_line(refused.message)}"
        return receipt.orders

    def _update(
        self, reply: Reply, order: StartTraining, epsilon: float | None
    ) -> Update | RefusedUpdate:
        """What came for a task, for the coordinator to check, or why it cannot be read."""
        answer = read_task_report(reply.facts, order)
        if isinstance(answer, RefusedUpdate):
            return answer
        try:
            tensors = self._tensors(answer, reply.payload, order)
        except LayoutMismatch as error:
            return RefusedUpdate(reason=Refusal.WRONG_LAYOUT, message=str(error))
        return Update(
            client=order.client,
            task=order.task,
            version=answer.version,
            steps_done=answer.steps_done,
            tensors=tensors,
            compute_seconds=answer.seconds,
            epsilon=epsilon,
        )

    def _tensors(
        self, answer: TaskReport, payload: Payload | None, order: StartTraining
    ) -> FlatState | None:
        coordinator = self._run.coordinator
        start = self._run.starts[order.version]
        if self._settings.secure.enabled:
            return None  # the site keeps them until a sum is asked for
        if answer.steps_done == 0:
            return start  # not looked at
        if payload is None:
            raise LayoutMismatch("the answer has no model")
        end = payload.state(coordinator.layout, start)
        return change_or_model(coordinator.payload, start, end, out=end)

    def _failed(self, now: Seconds, sent: Sent, peer: Peer | None, why: str) -> list[Order]:
        """No update came: ask again while the site is there, but not for ever."""
        assert sent.client is not None  # its order is outstanding
        assert sent.task is not None
        coordinator = self._run.coordinator
        if peer is not None:
            peer.failures += 1
        if peer is None or peer.failures >= self._settings.max_failures:
            self._give_up(now, peer)
            return coordinator.lose(now, sent.client, why=why)
        self._dispatcher.hold(sent.client, now + _RETRY.after(peer.failures))
        return coordinator.lose_task(now, sent.client, sent.task, why=why)

    def depart(self, now: Seconds, reply: Reply) -> list[Order] | None:
        """A site has said, unasked, that its budget is spent."""
        peer = self._membership.peers.get(reply.node)
        return self._left(now, reply, str(reply.facts["site"]), peer)

    def _left(
        self, now: Seconds, reply: Reply, client: ClientId, peer: Peer | None
    ) -> list[Order] | None:
        """A site's privacy budget is spent: it takes no further part, and is not asked again."""
        if peer is not None:
            peer.client, peer.has_left = None, True
        coordinator, known = self._run.coordinator, self._run.tally.clients.get(client)
        if known is None or known.budget_spent:
            return None  # of this run it was not, or the journal says so already
        if client not in coordinator.scheduler.roster.members:  # it was given up for another reason
            greeting = read_greeting(reply.facts)
            if isinstance(greeting, str):
                return None
            joined = coordinator.join(now, client, greeting.samples)
            self._run.settle(joined)  # its task is not sent
        why = one_line(reply.error or "budget spent")
        privacy = {**read_spent(reply.facts), "left": why}
        return coordinator.lose(now, client, why=why, privacy=privacy)

    def _late(self, now: Seconds, reply: Reply, sent: Sent, peer: Peer | None) -> None:
        """An answer nobody waits for any more; but who answers can take part again."""
        why = one_line(reply.error) if reply.error else "it came too late: the task was given up"
        self._run.audit.say("ignored", now, who=sent.client, task=sent.task, why=why)
        if peer is not None and peer.client is None and reply.error is None:
            peer.ask_at = now

    def _give_up(self, now: Seconds, peer: Peer | None) -> None:
        """Let a peer take part again only after it has said anew who it is, in a while."""
        if peer is not None:
            peer.failures = max(peer.failures, 1)
            peer.client, peer.ask_at = None, now + _RETRY.after(peer.failures)
