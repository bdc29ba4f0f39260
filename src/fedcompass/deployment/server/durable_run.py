"""A coordinator whose every event is on disk before anybody is told what follows from it."""

import secrets
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from fedcompass.aggregation import FlatState, Layout, RefusedUpdate, UsualNorms, change_norm
from fedcompass.coordinator import Coordinator, DriverCommand, Receipt, Update
from fedcompass.deployment.server.accepted_updates import AcceptedUpdates
from fedcompass.deployment.server.audit import Audit
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.repeat import repeat_journal
from fedcompass.deployment.wire.payloads import PayloadFile
from fedcompass.errors import CheckpointError, RunFolderError
from fedcompass.runs.checkpoint import Checkpoint
from fedcompass.runs.files import FolderLock, LineFile
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.journal import FileJournal, Line, Tee, lines_after, read_journal
from fedcompass.runs.tally import Tally
from fedcompass.scheduling.commands import Quarantine, SetDeadline, StartTraining
from fedcompass.scheduling.events import UpdateArrived
from fedcompass.vocabulary import ClientId, GroupId, ModelVersion, Seconds, TaskId

if TYPE_CHECKING:
    from fedcompass.deployment.server.site_sums import SiteSums

__all__ = ["DurableRun"]

_UPDATES_BETWEEN = 8  # checkpoints: so many updates stay on disk, and are repeated by a resume


class DurableRun:
    """The part of a federation that survives a crash.

    An event is complete once `settle` has returned: its update and journal lines are on disk. A
    checkpoint only makes a resume shorter. Where anything raises, this object is done for; what is
    on disk can be resumed.
    """

    def __init__(
        self,
        settings: FederationSettings,
        layout: Layout,
        initial: FlatState,
        folder: Path,
        *,
        resume: bool,
        wall: Callable[[], float],
        sums: "SiteSums | None" = None,
    ) -> None:
        strategy = settings.chosen_strategy()
        self.folder = RunFolder(folder)
        self._lock = _opened(self.folder, settings, resume)
        self.updates: AcceptedUpdates
        self.audit: Audit
        self.journal: FileJournal | None = None
        self._sums = sums  # where merges come from that nobody sees the parts of
        self._norms = UsualNorms(strategy.guard.times_median or inf)
        self.coordinator = Coordinator(strategy, layout, initial, sums=sums)
        self.tally = Tally()  # of the journal
        self.answered: dict[ClientId, TaskId] = {}  # before a resume, each client's last one
        self.deadlines: dict[GroupId, Seconds] = {}  # of groups that may be open
        self.starts: dict[ModelVersion, FlatState] = {}  # models of the outstanding tasks
        self.name = ""  # of the run; unique, so that a site never mixes up two runs' tasks
        self._header = {
            "strategy": strategy.to_json(),
            "seed": settings.seed,
            "model_bytes": initial.nbytes,  # of what travels: no frozen parameters
            "run": self.name,
        }
        self._saved: ModelVersion | None = None  # the checkpoint's
        try:
            self.updates = AcceptedUpdates(self.folder)
            self.audit = Audit(LineFile(folder / "audit.jsonl"), wall)
            self._resume(self.folder.checkpoint()) if self.folder.begun else self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self._call(f"{self.folder.path.name}-{secrets.token_hex(4)}")
        self.journal = self.folder.new_journal(self._header)
        self.updates.drop()
        self.coordinator.journal = Tee(self.journal, self.audit, self.tally)
        self.audit.say("started", 0.0, run=self.name)
        self._checkpoint()

    def _call(self, name: str) -> None:
        self.name = self._header["run"] = name
        if self._sums is not None:
            self._sums.run = name

    def _resume(self, saved: Checkpoint) -> None:
        lines = self._restore(saved)
        coordinator, path = self.coordinator, self.folder.journal
        missing = repeat_journal(
            coordinator, path, lines, self._kept_update, self.audit, self._remember
        )
        repeated = self.audit.events - saved.facts["events"]
        end = lines[-1].size if lines else saved.facts["journal_bytes"]
        self.journal = FileJournal(path, self._header, resume_at=end, durable=True)
        for command, notes in missing:
            self.journal.command(command, **notes)
        self.journal.flush()
        for _, record in read_journal(path):
            self.tally.take(record)
            if record.get("event") in ("UpdateArrived", "UpdateRefused"):
                self.answered[record["client"]] = record["task"]
        coordinator.journal = Tee(self.journal, self.audit, self.tally)
        coordinator.return_left_out()  # of a merge that the crash cut off
        now, version = coordinator.scheduler.now, coordinator.version
        self.audit.say("resumed", now, run=self.name, version=version, events_repeated=repeated)
        self._prune()
        self._checkpoint()

    def receive(
        self, at: Seconds, update: Update, file: PayloadFile | None, **notes: Any
    ) -> Receipt:
        """Take in an answer; its tensors are on disk before it is accepted.

        `file` is what they were read from, if that is a file; the journal gets the notes.
        """

        def keep(checked: Update) -> RefusedUpdate | None:
            if checked.steps_done == 0 or checked.tensors is None:
                return None  # the task was lost, or the site keeps its update itself
            norm = self._norm_per_step(checked, checked.tensors)
            refused = self._norms.refusal(norm)
            self._norms.note(checked.client, norm)
            if refused is None:
                self.updates.keep(checked, self.name, file)
            return refused

        return self.coordinator.receive(at, update, keep=keep, **notes)

    def _norm_per_step(self, update: Update, tensors: FlatState) -> float:
        """Of the change that the site made, whatever has become of the global model meanwhile."""
        start = self.starts[update.version].trainable
        is_model = self.coordinator.payload == "model"
        return change_norm(tensors.trainable, start if is_model else None) / update.steps_done

    def _kept_update(self, arrived: UpdateArrived) -> FlatState | None:
        """The tensors of an accepted update, if they are those that the journal speaks of."""
        coordinator = self.coordinator
        command = coordinator.scheduler.outstanding(arrived.client)
        if self._sums is not None or command is None:
            return None  # its site has them; or there was no such task, and the scheduler says so
        update = Update(
            client=arrived.client,
            task=arrived.task,
            version=command.version,
            steps_done=arrived.steps_done,
            tensors=None,
        )
        start = self.starts[command.version]
        layout, payload = coordinator.layout, coordinator.payload
        tensors = self.updates.tensors(update, self.name, layout, start, payload)
        self._norms.note(update.client, self._norm_per_step(update, tensors))
        return tensors

    def _restore(self, saved: Checkpoint) -> list[Line]:
        """Go back to where the checkpoint was made; returns the journal's lines since then."""
        facts = saved.facts
        try:
            self.starts = self.coordinator.restore(saved.tensors, facts)
            self.deadlines = {int(group): at for group, at in facts["deadlines"]}
            self._norms.restore(facts["norms"])
            self.audit.events = facts["events"]
            self._call(facts["run"])
            size = int(facts["journal_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.folder.path} has an incomplete checkpoint: {error!r}; restore a backup"
            ) from None
        return lines_after(self.folder.journal, size, facts.get("journal_crc"))

    def settle(self, commands: list[DriverCommand]) -> list[StartTraining]:
        """Put the last event on disk; only then may its tasks, which are returned, go out."""
        assert self.journal is not None  # from the beginning
        tasks = self._remember(commands)
        self.journal.flush()
        self.audit.flush()
        return tasks

    def checkpoint_if_due(self) -> None:
        """Make a checkpoint after a merge, once it covers several updates, or the merge's sum."""
        covers = self._sums is not None or self.updates.count >= _UPDATES_BETWEEN
        if self.coordinator.version != self._saved and covers:
            self._checkpoint()

    def outstanding(self) -> list[StartTraining]:
        """The tasks whose answers count."""
        members = self.coordinator.scheduler.roster.members.values()
        return [member.task for member in members if member.task is not None]

    def _remember(self, commands: list[DriverCommand]) -> list[StartTraining]:
        """Keep deadlines and start models; returns the tasks that are still outstanding.

        A deadline that was due can give a task to a client that leaves by the same event.
        """
        tasks = []
        for command in commands:
            match command:
                case StartTraining():
                    self.starts[command.version] = self.coordinator.start_model(command)
                    if self.coordinator.scheduler.outstanding(command.client) == command:
                        tasks.append(command)
                case SetDeadline(at=at, group=group):
                    self.deadlines[group] = at
                case Quarantine():
                    pass  # it gets no more tasks: nothing to do
                case _:
                    assert_never(command)
        self._prune()
        return tasks

    def _prune(self) -> None:
        """Forget what no outstanding task and no open group needs."""
        versions = {command.version for command in self.outstanding()}
        self.starts = {v: start for v, start in self.starts.items() if v in versions}
        open_until = self.coordinator.scheduler.policy.deadline_of
        self.deadlines = {g: at for g, at in self.deadlines.items() if open_until(g) is not None}

    def _checkpoint(self) -> None:
        assert self.journal is not None  # from the beginning
        self.audit.sync()  # events that a checkpoint covers are not repeated
        tensors, facts = self.coordinator.state(self.starts)
        self.folder.save_checkpoint(
            tensors,
            {
                **facts,
                "run": self.name,
                "deadlines": list(self.deadlines.items()),
                "events": self.audit.events,
                "norms": self._norms.to_json(),
                "journal_bytes": self.journal.flush(),
                "journal_crc": self.journal.crc,
            },
        )
        self._saved = self.coordinator.version
        self.updates.drop()
        if self._sums is not None:
            self._sums.drop()

    def finish(self, summary: dict[str, Any]) -> None:
        """Write what came out; the run can no longer be resumed, nor need it be."""
        self.folder.finish(summary)
        self.updates.drop()

    def close(self) -> None:
        """Let go of the folder; it can be resumed unless the run is finished."""
        try:
            if self.journal is not None:
                self.journal.close()
        finally:
            self._lock.release()


def _opened(folder: RunFolder, settings: FederationSettings, resume: bool) -> FolderLock:
    """Lock the folder of a run that is to begin or to go on, and write down its settings.

    Raises:
        RunFolderError: another server has it, it holds a run already (or, to resume, none or a
            finished one), or it cannot be written.
    """
    if resume and not (folder.path / "deployment.toml").is_file():
        raise RunFolderError(
            f"{folder.path} has no run to resume: no deployment.toml; begin one instead"
        )
    folder.make(exist_ok=True)
    lock = folder.lock()
    try:
        folder.check_unfinished()
        if not resume and folder.begun:
            raise RunFolderError(
                f"{folder.path} holds a run already; resume it (--resume) or choose another folder"
            )
        folder.write_settings("deployment.toml", settings.to_record())
    except BaseException:
        lock.release()
        raise
    return lock
