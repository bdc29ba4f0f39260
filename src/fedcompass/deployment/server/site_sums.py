"""Sums of what sites keep: a secure round for every merge, and its outcome on disk before its use.

`sums/NUMBER.safetensors` has what came of a merge, by its number among those that were tried, until
a checkpoint covers it; `sums/rounds` counts the rounds, so that none is ever opened twice.
"""

from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.deployment.wire.sum_parts import Begin
from fedcompass.deployment.wire.sum_rounds import RoundResult
from fedcompass.deployment.wire.transport import NodeId
from fedcompass.errors import CheckpointError, RunFolderError
from fedcompass.runs.checkpoint import load_checkpoint, save_checkpoint
from fedcompass.runs.files import write_whole
from fedcompass.secure_aggregation.messages import SumOpened
from fedcompass.secure_aggregation.terms import terms_for
from fedcompass.settings.secure import SecureSettings
from fedcompass.summed_merges import Asked, OpenedSum, state_of_sum, summed_length
from fedcompass.vocabulary import FEWEST_IN_A_SUM, ClientId, Seconds, TaskId

__all__ = ["SiteSums", "SumTransport"]


_TICK: Seconds = 0.05


@runtime_checkable
class SumTransport(Protocol):
    """A transport that can have sums opened, beside its other calls."""

    def attending(self) -> set[NodeId]:
        """Who is connected now; unlike `nodes` it says nothing of answers that were pulled."""
        ...

    def sum(self, begins: Mapping[ClientId, Begin], phase_seconds: Seconds) -> RoundResult:
        """Have the sum of sites' kept updates opened; waits for it."""
        ...


class SiteSums:
    """A `SumSource` whose clients are sites.

    Args:
        settings: how values become integers, and how long a site is waited for.
        transport: reaches the sites.
        folder: the run's.
        like: the global model.
        max_norm: sites scale larger changes down to it; None: they do not.

    Raises:
        RunFolderError: the folder cannot be written.
    """

    def __init__(
        self,
        settings: SecureSettings,
        transport: SumTransport,
        folder: Path,
        like: FlatState,
        max_norm: float | None,
    ) -> None:
        self._settings, self._transport = settings, transport
        self._like, self._max_norm = like, max_norm
        self._folder = folder / "sums"
        self.run = ""  # the run's name, which goes into every round
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self._folder} cannot be made: {error.strerror}") from None

    def keep(self, client: ClientId, task: TaskId, update: FlatState | None) -> None:
        """The site has it."""

    def opened(self, number: int, asked: Asked) -> OpenedSum:
        """The sum of those that are connected; after a crash, the one that was opened before it.

        Raises:
            CheckpointError: it cannot be written; the merge has not happened.
        """
        known = self._known(number, asked)
        if known is not None:
            return known
        members = self._connected(asked)
        if len(members) >= FEWEST_IN_A_SUM:
            outcome = self._outcome(self._round(members), members)
        else:
            outcome = OpenedSum(None, failed=_too_few(len(members), len(asked)))
        self._save(number, asked, outcome)
        return outcome

    def _connected(self, asked: Asked) -> Asked:
        """Those of them that are connected; too few are given time to come back."""
        until = monotonic() + self._settings.phase_seconds
        while True:
            connected = {str(node) for node in self._transport.attending()}
            members = {client: tasks for client, tasks in asked.items() if client in connected}
            if len(members) >= FEWEST_IN_A_SUM or monotonic() >= until:
                return members
            sleep(_TICK)

    def _round(self, members: Asked) -> RoundResult:
        terms = terms_for(
            self.run,
            self._next_round(),
            tuple(members),
            summed_length(self._like),
            clip=self._settings.clip,
            bits=self._settings.bits,
        )
        begins = {
            client: Begin(terms, dict(tasks), self._max_norm) for client, tasks in members.items()
        }
        return self._transport.sum(begins, self._settings.phase_seconds)

    def _next_round(self) -> int:
        """A number that no round of this run has had, on disk before it is used."""
        path = self._folder / "rounds"
        number = int(path.read_text(encoding="utf-8")) + 1 if path.exists() else 1
        write_whole(path, f"{number}\n")
        return number

    def _outcome(self, result: RoundResult, members: Asked) -> OpenedSum:
        cost: dict[str, Any] = {
            "bytes_up": result.received,
            "bytes_down": result.sent,
            "seconds": round(result.seconds, 3),
        }
        end = result.end
        if result.accused:
            cost |= {"accused": dict(result.accused)}
        if not isinstance(end, SumOpened):
            told = {"masked": cost}, end.reason, result.among
            return OpenedSum(None, tuple(members), result.lost, *told)
        sums = state_of_sum(end.values, self._like)
        return OpenedSum(sums, end.members, result.lost, notes={"masked": cost})

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"

    def _save(self, number: int, asked: Asked, outcome: OpenedSum) -> None:
        tensors = {} if outcome.sums is None else named_state("sum", outcome.sums)
        facts = {
            "run": self.run,
            "asked": _tasks(asked),
            "clients": list(outcome.clients),
            "lost": list(outcome.lost),
            "failed": outcome.failed,
            "among": list(outcome.among),
            "notes": dict(outcome.notes),
        }
        save_checkpoint(self._path(number), tensors, facts)

    def _known(self, number: int, asked: Asked) -> OpenedSum | None:
        path = self._path(number)
        if not path.exists():
            return None
        saved = load_checkpoint(path)
        facts = saved.facts
        if facts.get("run") != self.run or facts.get("asked") != _tasks(asked):
            return None  # of a merge that came to nothing: its updates cannot be offered again
        try:
            names = "clients", "lost", "notes", "failed", "among"
            clients, lost, notes, failed, among = (facts[name] for name in names)
            sums = None if failed else restored_state(saved.tensors, "sum", self._like)
            return OpenedSum(sums, clients, lost, notes, failed, among)
        except KeyError as error:
            raise CheckpointError(f"{path} is incomplete: {error!r}; restore a backup") from None

    def drop(self) -> None:
        """Forget the sums that a checkpoint covers."""
        for path in self._folder.glob("*.safetensors"):
            path.unlink(missing_ok=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Nothing: what waits is at the sites."""
        return {}, {}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Nothing to take over."""


def _too_few(connected: int, asked: int) -> str:
    return f"{connected} of {asked} sites are connected; {FEWEST_IN_A_SUM} or more are needed"


def _tasks(asked: Asked) -> list[TaskId]:
    return sorted(task for tasks in asked.values() for task in tasks)
