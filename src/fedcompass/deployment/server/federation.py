"""The event loop over the wall clock: replies in, tasks out, and nobody is waited for in vain."""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf, isfinite
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedcompass.aggregation import FlatState, Layout
from fedcompass.coordinator import DriverCommand
from fedcompass.deployment.server.background_evaluation import BackgroundEvaluation, Evaluate
from fedcompass.deployment.server.dispatcher import Dispatcher
from fedcompass.deployment.server.durable_run import DurableRun
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.federation_summary import Summary
from fedcompass.deployment.server.intake import Intake
from fedcompass.deployment.server.membership import Membership
from fedcompass.deployment.server.readmission import take_requests
from fedcompass.deployment.server.replies import LargestSpent
from fedcompass.deployment.wire.transport import Transport
from fedcompass.errors import SettingsError
from fedcompass.own_code import short
from fedcompass.runs.curve import Curve
from fedcompass.runs.files import LineFile
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds

if TYPE_CHECKING:
    from fedcompass.deployment.server.site_sums import SiteSums

__all__ = ["Federation"]

_MOST_TIMES = 10  # the samples of all others that one may have without a word
_LATE: Seconds = 1.0  # by which a look at who is connected may be late on a busy machine


class Federation:
    """Runs a strategy with real sites, from the first that joins to the end of the run.

    Time is seconds of this run on the monotonic clock; a resumed run goes on where the last event
    was, and the clock on the wall decides nothing.

    Args:
        settings: of the run.
        layout: the model's.
        initial: the model to begin with; a resumed run has its own.
        transport: carries messages to sites and back.
        folder: the run's; one server at a time.
        resume: go on with the run in the folder.
        evaluate: measures a model, in a thread of its own; None: nothing is measured.
        spent: a file with what sites have spent of their privacy budgets, in whatever run.
        frozen: parameters that nobody trains or sends, written beside the others in the end.
        clock: monotonic seconds.
        wall: seconds since 1970, for the audit log.
        pause: waits for so many seconds.

    Raises:
        FedcompassError: the folder is taken, holds another run, or cannot be written.
    """

    def __init__(
        self,
        settings: FederationSettings,
        layout: Layout,
        initial: FlatState,
        transport: Transport,
        folder: Path,
        *,
        resume: bool = False,
        evaluate: Evaluate | None = None,
        frozen: Mapping[str, Tensor] | None = None,
        spent: Path | None = None,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
        pause: Callable[[Seconds], None] = sleep,
    ) -> None:
        self.settings = settings
        self._frozen = dict(frozen or {})
        largest = LargestSpent(spent)
        sums = _site_sums(settings, transport, folder, initial)
        self._run = DurableRun(
            settings, layout, initial, folder, resume=resume, wall=wall, sums=sums
        )
        self.coordinator = self._run.coordinator
        self._metrics = LineFile(self._run.folder.metrics)
        self.curve = Curve(
            settings.target_metric, rises=settings.target_rises, rows=self._metrics.records()
        )
        self.membership = Membership()
        self._transport = transport
        self._dispatcher = Dispatcher(transport, self._run.name)
        self._evaluation = BackgroundEvaluation(evaluate)
        self._clock, self._pause = clock, pause
        self._before = self.coordinator.scheduler.now - clock()  # run time when the clock is 0
        self._watched: Seconds | None = None  # when the engine was asked who is connected
        self._offered = self.coordinator.version  # the version that was to be measured last
        strategy = settings.chosen_strategy()
        by_samples = strategy.scheduling.weights == "samples"
        by_samples &= strategy.by_tiers or "share" in strategy.aggregation.weighting
        self._claims_count = by_samples and settings.max_samples is None
        self._claims: dict[ClientId, int] = {}  # samples that were too many to believe, and said
        # Of who has had its share: when another's update came last, and how many had come by then.
        self._had_its_share: dict[ClientId, tuple[Seconds, int]] = {}
        self._intake = Intake(
            settings,
            self._run,
            self._dispatcher,
            self.membership,
            return_until=self.now() + settings.return_within,
            spent=largest,
        )
        transport.confirm(self._run.name, self._run.answered.values())  # receipts still owed
        for command in self._run.outstanding():
            self._dispatcher.give(command, self._run.starts[command.version])
        if self.curve.last_version < self.coordinator.version:
            self._offer(self.now())

    def now(self) -> Seconds:
        """Seconds of this run."""
        return max(self._before + self._clock(), self.coordinator.scheduler.now)

    @property
    def over(self) -> str | None:
        """Why the run is over, None while it is not."""
        settings = self.settings
        if settings.max_updates is not None and self.coordinator.version >= settings.max_updates:
            return "max_updates"
        if settings.max_seconds is not None and self.now() >= settings.max_seconds:
            return "max_seconds"
        if self.curve.time_to(settings.target) is not None:
            return "target"
        sites = self._run.tally.clients.values()
        return "budgets spent" if sites and all(site.budget_spent for site in sites) else None

    def run(self, on_step: Callable[["Federation"], None] | None = None) -> Summary:
        """Go on until a stop condition holds, and say what came out."""
        while self.over is None:
            self.step()
            if on_step is not None:
                on_step(self)
            self._pause(self._until_next())
        return self.finish()

    def _until_next(self) -> Seconds:
        """The time to the next poll, or to a deadline if that comes first."""
        first = min(self._run.deadlines.values(), default=float("inf"))
        return max(0.0, min(self.settings.poll_interval, first - self.now()))

    def step(self) -> None:
        """Do everything that is due now; never waits.

        Raises:
            FedcompassError: the disk is full or the engine broke; nothing that was not on disk
                was acknowledged, and the run can be resumed.
        """
        now = self.now()
        if self._watched is None or now - self._watched >= self.settings.watch_interval:
            self._watch(now)
        for remark in self._transport.remarks():
            self._run.audit.say(remark.what, now, who=str(remark.node), why=remark.why)
        for departed in self._transport.departures():
            self._settle(now, self._intake.depart(now, departed))
        for reply, sent in self._dispatcher.pull():
            self._settle(now, self._intake.take(now, reply, sent))
        for group, due in sorted(self._run.deadlines.items(), key=lambda item: (item[1], item[0])):
            if due <= now and group in self._run.deadlines:
                at = max(due, self.coordinator.scheduler.now)
                self._settle(self.now(), self.coordinator.pass_deadline(at, group))
        for client, why in self._intake.overdue(now):
            self._lose(now, client, why)
        if (spoiler := self.coordinator.spoiler) is not None:
            why = "it alone was in all sums that failed, and the sums of the others were opened"
            self._settle(now, self.coordinator.exclude(now, spoiler, why=why))
        self._push_due(now)
        self._measure()

    def _watch(self, now: Seconds) -> None:
        """See who came and who left, and let newcomers take part."""
        last = now if self._watched is None else self._watched
        missed = now - last - self.settings.watch_interval
        if missed > _LATE:  # this process was frozen, or very busy
            self.membership.excuse(missed)
            self._dispatcher.excuse(missed)
        self._watched = now
        self.membership.watch(now, self._transport.nodes())
        revoked = self._transport.is_revoked
        for peer in self.membership.leave(now, self.settings.gone_after, revoked):
            if peer.client is not None and revoked(peer.node):
                self._lose(now, peer.client, "it is not on the roster any more", revoked=True)
            elif peer.client is not None:
                self._lose(now, peer.client, "it is not connected any more")
        for client in self._intake.not_returned(now):
            self._lose(now, client, "it did not return after the server's restart")
        for client, by in take_requests(self._run.folder.path):
            self._readmit(now, client, by)
        self._intake.forget_unanswered(now)
        for peer in self.membership.to_ask(now):
            greeting = self._transport.greeting(peer.node)
            self._settle(now, self._intake.meet(now, peer, greeting))
        self._look_at_claims(now)

    def _look_at_claims(self, now: Seconds) -> None:
        """Say it where a site claims so many samples that the others have next to no weight.

        It may be true: nobody is turned away for it.
        """
        scheduler = self.coordinator.scheduler
        if not self._claims_count or not scheduler.started:
            return
        for client, member in scheduler.roster.members.items():
            others = scheduler.roster.active_samples - member.samples
            is_most = not member.quarantined and 0 < _MOST_TIMES * others < member.samples
            if is_most and self._claims.get(client) != member.samples:
                self._claims[client] = member.samples
                why = (
                    f"{member.samples:,}, more than {_MOST_TIMES} times the {others:,} of all "
                    "others, and they are its weight; if that cannot be, revoke it, and set "
                    "max_samples"
                )
                self._run.audit.say("claims most samples", now, who=client, why=why)

    def _lose(self, now: Seconds, client: ClientId, why: str, **notes: bool) -> None:
        if client in self.coordinator.scheduler.roster.members:
            self._settle(now, self.coordinator.lose(now, client, why=why, **notes))

    def _readmit(self, now: Seconds, client: ClientId, by: str) -> None:
        """Do as an operator asks, if there is anything to do."""
        roster = self.coordinator.scheduler.roster
        member = roster.members.get(client)
        quarantined = client in roster.barred or (member is not None and member.quarantined)
        if quarantined or (member is not None and client in roster.untold):
            self._settle(now, self.coordinator.lift_quarantine(now, client, by))
            return
        why = "it takes no part now" if member is None else "it is not in quarantine"
        self._run.audit.say("not readmitted", now, who=client, by=by, why=why)

    def _settle(self, now: Seconds, commands: list[DriverCommand] | None) -> None:
        """Put an event on disk, then send out what follows from it."""
        if commands is None:
            return
        for task in self._run.settle(commands):
            self._dispatcher.give(task, self._run.starts[task.version])
        self._dispatcher.keep_only({command.task for command in self._run.outstanding()})
        self._push_due(now)
        self._run.checkpoint_if_due()  # while the sites fetch their models
        every = self.settings.evaluate_every
        if self.coordinator.version // every > self._offered // every:
            self._offer(now)

    def _push_due(self, now: Seconds) -> None:
        self._dispatcher.push_due(now, self.membership, partial(self._must_wait, now))

    def _must_wait(self, now: Seconds, client: ClientId) -> bool:
        """Whether a site's task is kept back: it has had its share of the run, and others train.

        The scheduler does not know. Where nobody else trains, or none of the others' updates comes
        for `task_timeout`, the site goes on: who waits for silent ones would wait forever.
        """
        most, sites = self._most_versions(), self._run.tally.clients
        if sites[client].versions < most:
            return False
        outstanding = [task.client for task in self._run.outstanding() if task.client != client]
        others = [other for other in outstanding if sites[other].versions < most]
        if not others:
            return False
        came = sum(site.updates for name, site in sites.items() if name != client)
        known = self._had_its_share.get(client)
        if known is None or came > known[1]:
            self._had_its_share[client] = now, came
        elif now - known[0] >= self.settings.task_timeout:
            return False
        if known is None:
            why = (
                f"it made {sites[client].versions:.3g} of max_updates {self.settings.max_updates}; "
                "it waits while others train (fair_share)"
            )
            self._run.audit.say("has had its share", now, who=client, why=why)
        return True

    def _most_versions(self) -> float:
        """How many versions a site may make: a multiple of its even share, but not the others'.

        However few sites there are, each of the others is left the same part of its own share.
        """
        members = self.coordinator.scheduler.roster.active_count
        if self.settings.max_updates is None or members < 2:
            return inf
        even, times = self.settings.max_updates / members, self.settings.fair_share
        return min(times * even, self.settings.max_updates - (members - 1) * even / times)

    def _offer(self, now: Seconds) -> None:
        self._offered = self.coordinator.version
        self._evaluation.offer(self._offered, now, self.coordinator.snapshot())

    def _measure(self, *, wait: bool = False) -> None:
        """Write down what was measured, and keep the model that is the best so far."""
        metric = self.settings.target_metric
        for measured in self._evaluation.wait() if wait else self._evaluation.measured():
            if measured.error is not None:
                self._run.audit.say("evaluation failed", measured.time, why=measured.error)
                continue
            has = ", ".join(measured.metrics) or "nothing"
            wrong = f"target_metric is {metric!r}; the app measures: {has}"
            if self.settings.target is not None and metric not in measured.metrics:
                raise SettingsError(wrong)
            row = {"time": measured.time, "version": measured.version, **measured.metrics}
            self._metrics.append([row])
            if (wrong_model := _diverged(row, measured.model)) is not None:
                self._say_diverged(measured.time, measured.version, wrong_model)
            best = self.curve.add(row)
            if metric in measured.metrics and best:
                self._save_model("best", measured.model)
            elif metric not in measured.metrics and len(self.curve.rows) == 1:
                self._run.audit.say("no best model", measured.time, why=wrong)

    def _say_diverged(self, at: Seconds, version: ModelVersion, why: str) -> None:
        """Say after whose updates a model has diverged, unless that is known."""
        sound = [row["version"] for row in self.curve.rows if _diverged(row) is None]
        if self.curve.rows and self.curve.rows[-1]["version"] not in sound:
            return
        since = max(sound, default=0)
        sites = self._run.audit.contributors(since, version)
        told = f"{why} at version {version}; after version {since} updates of these were merged"
        self._run.audit.say(
            "diverged", at, version=version, contributors=sites, why=f"{told}: {', '.join(sites)}"
        )

    def _save_model(self, name: str, model: FlatState) -> None:
        tensors = {**self.coordinator.layout.unflatten(model), **self._frozen}
        self._run.folder.save_model(name, tensors)

    def finish(self) -> Summary:
        """Measure the last model, write what came out, and close."""
        reason, now = self.over or "stopped", self.now()
        self._measure(wait=True)
        if self.curve.last_version < self.coordinator.version:
            self._offer(now)
            self._measure(wait=True)
        run = self._run
        self._save_model("final", self.coordinator.model)
        summary = Summary(
            strategy=short(self.settings.chosen_strategy().name),
            seed=self.settings.seed,
            reason=reason,
            seconds=now,
            target=self.settings.target,
            curve=self.curve,
            tally=run.tally,
            pending=self.coordinator.scheduler.pending(),
        )
        run.audit.say("stopped", now, why=reason, version=self.coordinator.version)
        run.finish(summary.to_json())
        self.close()
        return summary

    def close(self) -> None:
        """Let go of the folder; an unfinished run can be resumed."""
        self._evaluation.close()
        self._run.close()


def _site_sums(
    settings: FederationSettings, transport: Transport, folder: Path, like: FlatState
) -> "SiteSums | None":
    """Where sums come from if the server is to see no single update.

    Raises:
        SettingsError: the transport cannot have sums opened.
        MissingExtra: the cryptography is not installed.
    """
    if not settings.secure.enabled:
        return None
    from fedcompass.deployment.server.site_sums import SiteSums, SumTransport

    if not isinstance(transport, SumTransport):
        raise SettingsError(
            "secure.enabled is true, but sites do not come over gRPC; allowed: with "
            "`fedcompass deploy` only"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    max_norm = settings.chosen_strategy().guard.max_norm
    return SiteSums(settings.secure, transport, folder, like, max_norm)


def _diverged(row: Mapping[str, Any], model: FlatState | None = None) -> str | None:
    """What is no number: an evaluation's loss, or the model that was measured."""
    loss = row.get("loss", 0.0)
    if loss is None or (isinstance(loss, float) and not isfinite(loss)):
        return "the loss is no number"
    if model is not None and not (
        model.trainable.isfinite().all() and model.averaged.isfinite().all()
    ):
        return "the model has NaN or infinite values"
    return None
