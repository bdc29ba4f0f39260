"""A run's folder as the page sees it: settings and results as facts, two files of lines."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcompass.errors import RunFolderError
from fedcompass.finite_json import finite
from fedcompass.own_code import short, with_names
from fedcompass.runs.journal import read_journal
from fedcompass.runs.origin import ORIGIN_FILE
from fedcompass.setting_tables import flat

__all__ = ["RunFiles", "find_runs", "plain_json"]

_SETTINGS = {"experiment.toml": "simulation", "deployment.toml": "deployment"}
_SCHEDULE = "schedule"  # a journal alone: nothing was trained
_MODELS = ("final.safetensors", "best.safetensors")
_COMMON = (
    "data",
    "problem",
    "model",
    "weights",
    "loss",
    "partition",
    "fleet",
    "min_clients",
    "target",
    "horizon",
)
"""Settings that runs of one comparison share; strategy, training and seed may differ."""
_LONGEST_HEADER = 64 * 2**20  # bytes; a longer one is no model of ours


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, finished or not."""

    path: Path

    @property
    def journal(self) -> Path:
        """Every event and command."""
        return self.path / "journal.jsonl"

    @property
    def metrics(self) -> Path:
        """One line per evaluation; absent where nothing was measured."""
        return self.path / "metrics.jsonl"

    @property
    def finished(self) -> bool:
        """Whether the run is over: its summary is written last; a schedule has none."""
        return self.has_summary or self.kind == _SCHEDULE

    @property
    def has_summary(self) -> bool:
        """Whether what came out was written."""
        return (self.path / "summary.json").is_file()

    @property
    def name(self) -> str:
        """The folder's."""
        return self.path.resolve().name

    @property
    def kind(self) -> str:
        """Simulation, deployment or schedule."""
        path = self._settings_file()
        return _SCHEDULE if path is None else _SETTINGS[path.name]

    def facts(self) -> dict[str, Any]:
        """All but the lines, as JSON values; what is not there yet is None.

        Raises:
            RunFolderError: a file is damaged.
        """
        return {
            "name": self.name,
            "kind": self.kind,
            "finished": self.finished,
            "settings": self.settings(),
            "common": self.common(),
            "summary": self.summary(),
            "clients": self._json("clients.json"),
            "origin": self._json(ORIGIN_FILE),
            "model_bytes": _model_bytes([self.path / name for name in _MODELS]),
        }

    def stamps(self) -> tuple[int, ...]:
        """Changes when `facts` may have changed."""
        names = (*_SETTINGS, "summary.json", "clients.json", ORIGIN_FILE, *_MODELS)
        return tuple(_changed_at(self.path / name) for name in names)

    def common(self) -> dict[str, Any]:
        """What runs of one comparison have in common: the settings, flat, and a label in words."""
        settings = self.settings() or {}
        kept = {key: settings[key] for key in _COMMON if key in settings}
        kept["target_metric"] = settings.get("evaluation", settings).get("target_metric")
        shared = {key: str(value) for key, value in flat(kept).items() if key != "data.root"}
        return {"settings": {"kind": self.kind, **shared}, "label": _label(self.kind, settings)}

    def summary(self) -> Any:
        """What came out; None if the run is not over.

        Raises:
            RunFolderError: the file is damaged.
        """
        return self._json("summary.json")

    def settings(self) -> dict[str, Any] | None:
        """All settings, with short names of the user's own things; None if there are none.

        Raises:
            RunFolderError: the file is damaged.
        """
        path = self._settings_file()
        if path is None:
            return None
        try:
            settings: dict[str, Any] = finite(tomllib.loads(path.read_text("utf-8")))
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from None
        return with_names(settings, short)

    def _settings_file(self) -> Path | None:
        return next((p for name in _SETTINGS if (p := self.path / name).is_file()), None)

    def records(self) -> Iterator[dict[str, Any]]:
        """The journal's lines, its header first; none if there is no journal.

        Raises:
            JournalError: it cannot be read.
        """
        if self.journal.is_file():
            yield from (record for _, record in read_journal(self.journal))

    def evaluations(self) -> Iterator[dict[str, Any]]:
        """One row per evaluation; a last line cut off by a crash is left out.

        Raises:
            RunFolderError: a line is damaged.
        """
        if not self.metrics.is_file():
            return
        with self.metrics.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith("\n"):
                    return
                try:
                    yield dict(json.loads(line))
                except (ValueError, TypeError) as error:
                    raise RunFolderError(
                        f"{self.metrics}: line {number} is damaged: {error}; leave the run out"
                    ) from None

    def _json(self, name: str) -> Any:
        path = self.path / name
        if not path.is_file():
            return None
        try:
            return finite(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(path, error) from None


def find_runs(paths: Iterable[Path]) -> list[RunFiles]:
    """The runs in these folders: each is a run's, or holds runs' folders as `compare` writes them.

    Raises:
        RunFolderError: a folder is neither.
    """
    found: dict[Path, RunFiles] = {}
    for path in paths:
        runs = [path] if _is_run(path) else _runs_inside(path)
        if not runs:
            reason = "holds no run" if path.is_dir() else "is not a folder"
            raise RunFolderError(
                f"{path} {reason}; give a run's folder (with journal.jsonl), or one of such folders"
            )
        found |= {run.resolve(): RunFiles(run) for run in runs}
    return list(found.values())


def plain_json(value: Any) -> str:
    """JSON that is harmless inside an HTML script element, whatever text it holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in ("journal.jsonl", *_SETTINGS))


def _runs_inside(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if _is_run(child)) if path.is_dir() else []


def _label(kind: str, settings: Mapping[str, Any]) -> str:
    data, fleet = settings.get("data", {}), settings.get("fleet", {})
    if not data:
        return f"a {kind}"
    model = settings.get("problem") or settings.get("model")
    words = [f"{data.get('name')} ({model})"]
    if "partition" in settings:
        words.append(f"{settings['partition'].get('kind')} partition")
    words.append(f"{fleet.get('clients')} clients")
    if fleet.get("paces") or fleet.get("trace"):
        words[-1] += " of given paces"
    elif "speed" in fleet:
        words[-1] += f" of {fleet['speed']} speed"
    return ", ".join(words)


def _model_bytes(models: Iterable[Path]) -> int | None:
    """What one transfer of the model weighs: the tensors of a safetensors file, by its header."""
    for path in models:
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length)) if length < _LONGEST_HEADER else {}
            return max(
                int(entry["data_offsets"][1])
                for name, entry in header.items()
                if name != "__metadata__"
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not there, or no model: the page counts transfers instead of bytes
    return None


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _damaged(path: Path, error: Exception) -> RunFolderError:
    return RunFolderError(f"{path} cannot be read: {error}; restore it or leave the run out")
