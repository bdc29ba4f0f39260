"""Every error fedcompass raises on purpose: one line that says what, where and what to do next.

FedcompassError
├── SettingsError            a setting is missing, unknown or out of range
├── EventRefused             an event a scheduler cannot take; nothing was changed
├── MergeNotFinite           a merge that would leave a model with NaN or infinite values
├── LayoutMismatch           tensors without the model's names, shapes or dtypes
├── JournalError             a journal that cannot be read
│   └── ReplayMismatch       a replayed journal asked for other commands than it recorded
├── CheckpointError          a checkpoint that cannot be read or does not fit the run
├── DataError                a dataset that is missing, damaged or of the wrong shape
├── RunFolderError           a run folder that exists, is damaged or belongs to another experiment
├── StoreError               a file of results that is damaged, foreign or of a newer version
├── TaskFailed               local training raised; the client and the task are named
│   └── BudgetSpent          a site's privacy budget allows no further step; it leaves
├── ProjectError             a federation's folder is incomplete, unsafe or in the way
├── TransportBroken          the network engine stopped answering; the run can be resumed
├── ProcessFailed            a process of a federation did not start or kept dying
├── AppError                 a user's app.py does not load or run; names file and line
├── WireError                a message between two processes that is malformed or too large
├── MessageRefused           a message that does not belong to a secure round; nothing was changed
├── EncodingError            values that a secure sum has no room for
├── WorkerLost               a site's worker is not there, or died with a task in hand
└── MissingExtra             an optional package is not installed; names its `pip install` line

The command line prints the message and exits with code 1; a traceback means a bug of ours.
"""

__all__ = [
    "AppError",
    "BudgetSpent",
    "CheckpointError",
    "DataError",
    "EncodingError",
    "EventRefused",
    "FedcompassError",
    "JournalError",
    "LayoutMismatch",
    "MergeNotFinite",
    "MessageRefused",
    "MissingExtra",
    "ProcessFailed",
    "ProjectError",
    "ReplayMismatch",
    "RunFolderError",
    "SettingsError",
    "StoreError",
    "TaskFailed",
    "TransportBroken",
    "WireError",
    "WorkerLost",
]


class FedcompassError(Exception):
    """Anything that went wrong for a reason the user can act on."""


class SettingsError(FedcompassError, ValueError):
    """A setting is missing, unknown or out of range."""


class EventRefused(FedcompassError):
    """An event a scheduler cannot take in its present state; nothing was changed."""


class MergeNotFinite(FedcompassError):
    """A merge would not be finite; its buffers are emptied, and nothing else was changed."""


class LayoutMismatch(FedcompassError):
    """A tensor collection does not have the model's names, shapes or dtypes."""


class JournalError(FedcompassError):
    """A journal cannot be read."""


class ReplayMismatch(JournalError):
    """Replaying a journal gave other commands than it recorded."""


class CheckpointError(FedcompassError):
    """A checkpoint cannot be read or does not fit the run."""


class DataError(FedcompassError):
    """A dataset is missing, damaged or of the wrong shape."""


class RunFolderError(FedcompassError):
    """A run folder exists already, is damaged or belongs to another experiment."""


class StoreError(FedcompassError):
    """A file of results is damaged, not one of ours, or of a newer version."""


class TaskFailed(FedcompassError):
    """Local training raised; the message names the client and the task."""


class BudgetSpent(TaskFailed):
    """A site's privacy budget allows no further step: it leaves, and the run goes on."""

    def __init__(self, spent: float, epsilon: float) -> None:
        super().__init__(spent, epsilon)
        self.spent, self.epsilon = spent, epsilon

    def __str__(self) -> str:
        return (
            f"budget spent: epsilon is {self.spent:.3g} of {self.epsilon:g}, and one more step "
            "would exceed it"
        )


class MissingExtra(FedcompassError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)
        self.package, self.extra, self.purpose = package, extra, purpose

    def __str__(self) -> str:
        return (
            f"{self.purpose} needs {self.package}, which is not installed. "
            f"Run in its checkout: pip install -c constraints.txt '.[{self.extra}]'"
        )


class ProjectError(FedcompassError):
    """A federation's folder is incomplete, unsafe or in the way of a new one."""


class ProcessFailed(FedcompassError):
    """A process of a federation did not start, or died more often than it is restarted."""


class AppError(FedcompassError):
    """A user's app.py does not load, raises, or returns the wrong thing."""


class WireError(FedcompassError):
    """A message between two processes of a federation is malformed or larger than allowed."""


class MessageRefused(FedcompassError):
    """A message does not belong to a secure round or its phase, or cannot be true."""


class EncodingError(FedcompassError, ValueError):
    """Values that a secure sum has no room for: not finite, beyond the clip, or too many."""


class WorkerLost(FedcompassError):
    """A site's worker is not there, or went away with a task in hand."""


class TransportBroken(FedcompassError):
    """The network engine stopped answering; the run can be resumed."""
