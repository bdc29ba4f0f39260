"""Runs in MLflow: settings as parameters, metrics by version; at last summary, report, models."""

import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.report.tracking.followed_run import OpenTracker, Status
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

__all__ = ["MlflowTracker", "mlflow_opener", "usual_uri"]

_SQLITE = "sqlite:///"
_EXPERIMENT = "fedcompass"
"""The MLflow experiment runs go to, unless $MLFLOW_EXPERIMENT_NAME names another."""

_BATCH_METRICS, _BATCH_PARAMS = 1000, 100  # the most that MLflow takes at once
_LONGEST_PARAM = 500  # characters; what every MLflow server takes
_ENDS: dict[Status, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

# Nothing is sent but what the user asked to be logged, and a server that is away is given up soon.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def usual_uri() -> str:
    """$MLFLOW_TRACKING_URI, else a file in this folder: `mlflow ui` shows that one by itself."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def mlflow_opener(uri: str) -> OpenTracker:
    """Logs runs to a tracking server or database.

    Raises:
        MissingExtra: MLflow is not installed.
        SettingsError: there is no such server, or it cannot be used.
    """
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    with _quiet():
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise MissingExtra("mlflow", "mlflow", "--mlflow") from None
        _check_database(uri)
        try:
            client = MlflowClient(tracking_uri=uri)
            experiment = _experiment(client)
        except Exception as error:  # servers and databases fail in many ways
            reason = str(error).strip().partition("\n")[0]
            raise SettingsError(
                f"--mlflow is {uri!r}, which cannot be used: {reason[:200]}; start the server "
                "or give another URI, such as sqlite:///mlflow.db"
            ) from None
    return partial(MlflowTracker, client, experiment)


def _check_database(uri: str) -> None:
    """Say at once that a database file cannot be used: MLflow tries again for two minutes."""
    if not uri.startswith(_SQLITE):
        return
    path = Path(uri.removeprefix(_SQLITE).partition("?")[0])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=1.0)) as database:
            database.execute("BEGIN IMMEDIATE")  # a database that cannot be written to raises
    except (OSError, sqlite3.Error) as error:
        if "locked" in str(error):
            return  # somebody writes to it now, so it can be used
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"--mlflow is {uri!r}, which cannot be used: {reason}; give another URI, such as "
            "sqlite:////tmp/mlflow.db, or work in a folder that can be written to"
        ) from None


def _experiment(client: "MlflowClient") -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
    known = client.get_experiment_by_name(name)
    return str(known.experiment_id if known else client.create_experiment(name))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of MLflow and its database library about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class MlflowTracker:
    """One MLflow run; points are sent in batches.

    A point's time is the run's start plus the run's own time, so that MLflow's relative time axis
    shows the run's time.
    """

    keeps_files = True

    @_quiet()
    def __init__(self, client: "MlflowClient", experiment: str, name: str) -> None:
        self._client = client
        self._began = time()
        self._run: str = client.create_run(experiment, run_name=name).info.run_id
        self._kept: list[Metric] = []
        self._last_step, self._last_at = 0, 0.0

    @_quiet()
    def settings(self, values: Mapping[str, Any]) -> None:
        """Log the settings as parameters."""
        from mlflow.entities import Param

        params = [Param(key, str(value)[:_LONGEST_PARAM]) for key, value in values.items()]
        for first in range(0, len(params), _BATCH_PARAMS):
            self._client.log_batch(self._run, params=params[first : first + _BATCH_PARAMS])

    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        """Keep points until a batch is full."""
        from mlflow.entities import Metric

        moment = round(1000 * (self._began + at))  # milliseconds
        self._kept += [Metric(name, value, moment, step) for name, value in values.items()]
        self._last_step, self._last_at = max(self._last_step, step), max(self._last_at, at)
        if len(self._kept) >= _BATCH_METRICS:
            self.flush()

    @_quiet()
    def flush(self) -> None:
        """Send the points kept."""
        while self._kept:
            batch, self._kept = self._kept[:_BATCH_METRICS], self._kept[_BATCH_METRICS:]
            self._client.log_batch(self._run, metrics=batch)

    @_quiet()
    def files(self, paths: Sequence[Path]) -> None:
        """Log the files as artifacts."""
        for path in paths:
            self._client.log_artifact(self._run, str(path))

    @_quiet()
    def close(self, summary: Mapping[str, float], status: Status) -> None:
        """Log the summary and end the run."""
        self.metrics(summary, step=self._last_step, at=self._last_at)
        self.flush()
        self._client.set_terminated(self._run, _ENDS[status])
