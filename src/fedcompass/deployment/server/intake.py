"""What becomes of a reply: an update, a refusal, a lost task, or a site that takes part."""

from fedcompass.aggregation import FlatState, RefusedUpdate
from fedcompass.coordinator import DriverCommand, Update
from fedcompass.deployment.backoff import Backoff
from fedcompass.deployment.server.dispatcher import Dispatcher, Sent
from fedcompass.deployment.server.durable_run import DurableRun
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.membership import Membership, Peer
from fedcompass.deployment.server.replies import LargestSpent, checked_greeting, spent_by
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.deployment.wire.transport import Greeting, Reply
from fedcompass.errors import LayoutMismatch
from fedcompass.scheduling.commands import StartTraining
from fedcompass.training.local import change_or_model
from fedcompass.vocabulary import ClientId, Refusal, Seconds

__all__ = ["Intake"]

_RETRY = Backoff(first=0.5, longest=30.0)  # seconds; for a site that failed


class Intake:
    """Turns replies into events, and sees to it that everybody connected takes part.

    The members of a resumed run have time to connect again until `return_until`.
    """

    def __init__(
        self,
        settings: FederationSettings,
        run: DurableRun,
        dispatcher: Dispatcher,
        membership: Membership,
        return_until: Seconds,
        spent: LargestSpent,
    ) -> None:
        self._settings, self._run, self._dispatcher = settings, run, dispatcher
        self._spent = spent
        self._membership = membership
        self._return_until = return_until
        self._returning = dict.fromkeys(run.coordinator.scheduler.roster.members)

    def forget_unanswered(self, now: Seconds) -> None:
        """Give up on probes that were not answered, and on tasks that have expired."""
        for peer in self._membership.peers.values():
            if peer.asked is not None and now - peer.asked_at > self._settings.task_timeout:
                peer.asked = None
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
            command, late = sent.command, now - sent.at
            if command is not None and self._counts(command):
                why = f"task {command.task} is not answered after {late:.0f} s (task_timeout)"
                found.append((command.client, why))
                self._give_up(now, self._membership.peers.get(sent.node))
        return found

    def take(self, now: Seconds, reply: Reply, sent: Sent) -> list[DriverCommand] | None:
        """Deal with a reply; None: nothing happened that a scheduler has to know."""
        peer, command = self._membership.peers.get(sent.node), sent.command
        if command is None:
            return None if peer is None else self._probed(now, reply, peer)
        if reply.node == sent.node:
            self._compare_spent(now, command.client, reply)
        if reply.budget_spent and reply.node == sent.node:
            return self._left(now, reply, command.client, peer)
        if not self._counts(command):
            self._late(now, reply, command, peer)
            return None
        if reply.node != sent.node:
            return self._failed(now, command, peer, f"node {reply.node} answered in its place")
        if reply.error is not None:
            return self._failed(now, command, peer, reply.error)
        return self._answer(now, reply, command, peer)

    def _compare_spent(self, now: Seconds, client: ClientId, reply: Reply) -> None:
        """Say it where a site's privacy account cannot be right; a task that failed tells none."""
        spent = spent_by(reply)
        if not spent and reply.error is not None:
            return
        problem = self._spent.problem(client, spent)
        if problem is not None:
            self._run.audit.say("account set back", now, who=client, why=problem)

    def _counts(self, command: StartTraining) -> bool:
        """Whether the answer to a task still counts."""
        outstanding = self._run.coordinator.scheduler.outstanding(command.client)
        return outstanding is not None and outstanding.task == command.task

    def meet(
        self, now: Seconds, peer: Peer, greeting: Greeting | None
    ) -> list[DriverCommand] | None:
        """Let a peer take part by what it said of itself; where it said nothing, ask it."""
        if greeting is not None:
            return self._greet(now, peer, greeting)
        coordinator = self._run.coordinator
        self._dispatcher.probe(now, peer, coordinator.version, coordinator.snapshot())
        return None

    def _probed(self, now: Seconds, reply: Reply, peer: Peer) -> list[DriverCommand] | None:
        if peer.asked != reply.message or peer.client is not None:
            return None
        peer.asked = None
        if reply.error is not None:
            self._turn_away(now, peer, reply.error)
            return None
        return self._greet(now, peer, reply.greeting)

    def _greet(self, now: Seconds, peer: Peer, said: Greeting) -> list[DriverCommand] | None:
        greeting = checked_greeting(said, self._settings.max_samples)
        if isinstance(greeting, str):
            self._turn_away(now, peer, greeting)
            return None
        client = self._membership.identify(peer, greeting.site)
        members = self._run.coordinator.scheduler.roster.members
        where = {"node": peer.node}
        if greeting.address is not None:
            where["address"] = greeting.address
        returning = client in self._returning
        self._returning.pop(client, None)
        if returning and client in members and members[client].samples == greeting.samples:
            # The server restarted, not the site: it goes on with its task, its pace and its group.
            self._run.audit.say("returned", now, who=client, **where)
            return []
        return self._run.coordinator.join(now, client, greeting.samples, **where)

    def _turn_away(self, now: Seconds, peer: Peer, why: str) -> None:
        peer.failures += 1
        self._give_up(now, peer)
        self._run.audit.say("turned away", now, node=peer.node, why=one_line(why))

    def _answer(
        self, now: Seconds, reply: Reply, command: StartTraining, peer: Peer | None
    ) -> list[DriverCommand]:
        coordinator, payload, spent = self._run.coordinator, reply.payload, spent_by(reply)
        size = 0 if payload is None else payload.size
        update = self._update(reply, command, spent.get("epsilon"))
        if isinstance(update, RefusedUpdate):
            receipt = coordinator.refuse(now, command.client, command.task, update, bytes=size)
        else:
            file = None if payload is None else payload.file
            privacy = {"privacy": spent} if spent else {}
            receipt = self._run.receive(now, update, file, bytes=size, **privacy)
        refused = receipt.refused
        if peer is not None and refused is None:
            peer.refused, peer.failures = None, 0
        elif peer is not None and refused is not None:
            peer.refused = f"{refused.reason.value}: {one_line(refused.message)}"
            if refused.reason is Refusal.UNUSUAL_NORM:  # may happen often without a quarantine
                peer.failures += 1
                self._dispatcher.hold(command.client, now + _RETRY.after(peer.failures))
        return receipt.commands

    def _update(
        self, reply: Reply, command: StartTraining, epsilon: float | None
    ) -> Update | RefusedUpdate:
        """What came for a task, for the coordinator to check, or why it cannot be read."""
        if reply.task not in (None, command.task):
            why = f"the answer to task {command.task} says it is task {reply.task}"
            return RefusedUpdate(reason=Refusal.UNEXPECTED_TASK, message=why)
        if reply.steps_done is None:
            why = "the answer has no steps_done, or one that is not a whole number; report it"
            return RefusedUpdate(reason=Refusal.WRONG_STEPS, message=why)
        try:
            tensors = self._tensors(reply, command)
        except LayoutMismatch as error:
            return RefusedUpdate(reason=Refusal.WRONG_LAYOUT, message=str(error))
        return Update(
            client=command.client,
            task=command.task,
            version=command.version if reply.version is None else reply.version,
            steps_done=reply.steps_done,
            tensors=tensors,
            compute_seconds=reply.seconds,
            epsilon=epsilon,
        )

    def _tensors(self, reply: Reply, command: StartTraining) -> FlatState | None:
        coordinator = self._run.coordinator
        start = self._run.starts[command.version]
        if self._settings.secure.enabled:
            return None  # the site keeps them until a sum is asked for
        if reply.steps_done == 0:
            return start  # not looked at
        if reply.payload is None:
            raise LayoutMismatch("the answer has no model")
        end = reply.payload.state(coordinator.layout, start)
        return change_or_model(coordinator.payload, start, end, out=end)

    def _failed(
        self, now: Seconds, command: StartTraining, peer: Peer | None, why: str
    ) -> list[DriverCommand]:
        """No update came: ask again while the site is there, but not for ever."""
        coordinator = self._run.coordinator
        if peer is not None:
            peer.failures += 1
        if peer is None or peer.failures >= self._settings.max_failures:
            self._give_up(now, peer)
            return coordinator.lose(now, command.client, why=why)
        self._dispatcher.hold(command.client, now + _RETRY.after(peer.failures))
        return coordinator.lose_task(now, command.client, command.task, why=why)

    def depart(self, now: Seconds, reply: Reply) -> list[DriverCommand] | None:
        """A site has said, unasked, that its budget is spent."""
        peer = self._membership.peers.get(reply.node)
        return self._left(now, reply, reply.greeting.site or str(reply.node), peer)

    def _left(
        self, now: Seconds, reply: Reply, client: ClientId, peer: Peer | None
    ) -> list[DriverCommand] | None:
        """A site's privacy budget is spent: it takes no further part, and is not asked again."""
        if peer is not None:
            peer.client, peer.has_left = None, True
        coordinator, known = self._run.coordinator, self._run.tally.clients.get(client)
        if known is None or known.budget_spent:
            return None  # of this run it was not, or the journal says so already
        if client not in coordinator.scheduler.roster.members:  # it was given up for another reason
            greeting = checked_greeting(reply.greeting)
            if isinstance(greeting, str):
                return None
            joined = coordinator.join(now, client, greeting.samples)
            self._run.settle(joined)  # its task is not sent
        why = one_line(reply.error or "budget spent")
        privacy = {**spent_by(reply), "left": why}
        return coordinator.lose(now, client, why=why, privacy=privacy)

    def _late(self, now: Seconds, reply: Reply, command: StartTraining, peer: Peer | None) -> None:
        """An answer nobody waits for any more; but who answers can take part again."""
        why = one_line(reply.error) if reply.error else "it came too late: the task was given up"
        self._run.audit.say("ignored", now, who=command.client, task=command.task, why=why)
        if peer is not None and peer.client is None and reply.error is None:
            peer.ask_at = now

    def _give_up(self, now: Seconds, peer: Peer | None) -> None:
        """Let a peer take part again only after it has said anew who it is, in a while."""
        if peer is not None:
            peer.failures = max(peer.failures, 1)
            peer.client, peer.ask_at = None, now + _RETRY.after(peer.failures)
