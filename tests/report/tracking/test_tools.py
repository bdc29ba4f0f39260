"""TensorBoard, MLflow and W&B hold what a run measured, read back with their own readers."""

import builtins
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcompass.errors import FedcompassError, MissingExtra, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.report.tracking import track
from fedcompass.report.tracking.mlflow import mlflow_opener, usual_uri
from fedcompass.report.tracking.tensorboard import tensorboard_opener
from fedcompass.report.tracking.wandb import usual_project, wandb_opener
from fedcompass.simulation.run import simulate

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from click.testing import Result
    from typer.testing import CliRunner

    from fedcompass.cli import app


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    for name in ("WANDB_PROJECT", "WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    kept = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(kept)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked") / "runs" / "mine"
    simulate(Experiment(horizon=2.0, fleet={"clients": 3}), folder=folder, executor="serial")
    return folder


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all tests: MLflow takes seconds to make one."""
    pytest.importorskip("mlflow", reason="needs the mlflow extra")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def fedcompass(*arguments: str) -> Result:
    result = CliRunner(mix_stderr=False).invoke(app, arguments)
    if isinstance(result.exception, FedcompassError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """What TensorBoard shows of a folder: step, value and wall time by tag."""
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def mlflow_runs(uri: str) -> dict[str, Any]:
    """What MLflow has, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its database library
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("fedcompass")
        assert experiment is not None
        found = client.search_runs([experiment.experiment_id])
    return {run.info.run_name: run for run in found}


def test_tensorboard_shows_the_curve_by_version_and_virtual_time(run: Path) -> None:
    track(run, "mine", [tensorboard_opener(Path("tb"))])
    shown, rows = scalars(Path("tb/mine")), rows_of(run)
    accuracy = shown["test/accuracy"]
    assert [step for step, _, _ in accuracy] == [row["version"] for row in rows]
    assert [value for _, value, _ in accuracy] == pytest.approx([r["accuracy"] for r in rows])
    relative = [wall - accuracy[0][2] for _, _, wall in accuracy]
    assert relative == pytest.approx([row["time"] for row in rows], abs=1e-3)
    for name in ("test/loss", "updates", "steps", "staleness/mean", "idle_share", "time"):
        assert name in shown
    assert "summary/global_updates" in shown


def test_a_run_written_to_tensorboard_twice_is_shown_once(run: Path) -> None:
    for _ in range(2):
        track(run, "mine", [tensorboard_opener(Path("tb"))])
    assert len(scalars(Path("tb/mine"))["test/accuracy"]) == len(rows_of(run))


def test_mlflow_has_settings_curve_and_summary(run: Path, database: str) -> None:
    track(run, "mine", [mlflow_opener(database)])
    logged, rows = mlflow_runs(database)["mine"], rows_of(run)
    assert logged.info.status == "FINISHED"
    assert logged.data.params["strategy.name"] == "fedcompass"
    assert logged.data.metrics["test/accuracy"] == pytest.approx(rows[-1]["accuracy"])
    assert "summary/mean_staleness" in logged.data.metrics


def test_mlflow_keeps_the_report_and_the_models(run: Path, database: str) -> None:
    track(run, "with files", [mlflow_opener(database)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its database library
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=database)
        logged = mlflow_runs(database)["with files"].info.run_id
        names = [file.path for file in client.list_artifacts(logged)]
        assert names == ["best.safetensors", "final.safetensors", "report.html"]
        kept = Path(client.download_artifacts(logged, "final.safetensors"))
    assert kept.read_bytes() == (run / "final.safetensors").read_bytes()


def wandb_records(folder: Path) -> list[Any]:
    """What W&B wrote of a run offline, for `wandb sync`."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    [file] = folder.glob("offline-run-*/run-*.wandb")
    store, found = DataStore(), []
    store.open_for_scan(str(file))
    while (content := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        found.append(record)
    store.close()
    return found


def test_wandb_has_settings_curve_summary_report_and_models_offline(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs the wandb extra")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert usual_project() == "fedcompass"
    track(run, "mine", [wandb_opener("trial")])
    records, rows = wandb_records(Path("wandb")), rows_of(run)
    [begun] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (begun.project, begun.display_name) == ("trial", "mine")
    points = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in r.history.item}
        for r in records
        if r.WhichOneof("record_type") == "history"
    ]
    curve = [point for point in points if "test/accuracy" in point]
    assert [point["version"] for point in curve] == [row["version"] for row in rows]
    assert [point["test/accuracy"] for point in curve] == [row["accuracy"] for row in rows]
    told = str(records)
    for words in ("strategy.name", "summary/mean_staleness", "report.html", "final.safetensors"):
        assert words in told


def test_wandb_without_a_login_is_said_before_anything_runs() -> None:
    pytest.importorskip("wandb", reason="needs the wandb extra")
    with pytest.raises(SettingsError, match="--wandb needs a login; run `wandb login`"):
        fedcompass("run", "--no-train", "--wandb")
    assert not Path("runs").exists()


def test_one_flag_each_tracks_a_run_and_a_comparison(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usual_uri() == "sqlite:///mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    short = ("--horizon", "2", "--clients", "3")
    output = fedcompass("run", "--name", "mine", *short, "--tensorboard", "--executor", "serial")
    assert "to look at it      runs/mine/report.html" in output.stdout
    assert "test/accuracy" in scalars(Path("tensorboard/mine"))
    fedcompass(
        *("compare", "--strategies", "fedavg,fedcompass", "--seeds", "1", *short),
        *("--workers", "1", "--name", "both", "--tensorboard", "tb", "--mlflow"),
    )
    assert "test/accuracy" in scalars(Path("tb/both/fedavg-seed0"))
    assert {"both/fedavg-seed0", "both/fedcompass-seed0"} <= set(mlflow_runs(database))


def test_an_experiments_file_is_not_taken_for_a_folder() -> None:
    with pytest.raises(SettingsError, match=r"--tensorboard is 'e\.toml', an experiment's file"):
        fedcompass("run", "--tensorboard", "e.toml")


def test_a_server_that_is_not_there_is_said_before_anything_runs() -> None:
    pytest.importorskip("mlflow", reason="needs the mlflow extra")
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    with pytest.raises(SettingsError, match=r"--mlflow is 'http://127\.0\.0\.1:9', which"):
        fedcompass("run", "--no-train", "--mlflow", "http://127.0.0.1:9")
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_made_is_one_line() -> None:
    Path("file").write_text("in the way")
    with pytest.raises(SettingsError, match="--tensorboard is 'file/tb', which cannot be made"):
        tensorboard_opener(Path("file/tb"))


@pytest.mark.parametrize("tool", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_extra_is_one_line_with_its_install_command(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == tool or name == f"torch.utils.{tool}":
            raise ImportError(name)
        found = imported(name, *rest, **more)
        if name == "torch.utils" and tool in (rest[2] or ()):
            raise ImportError(name)
        return found

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra) as caught:
        fedcompass("run", f"--{tool}")
    assert str(caught.value) == (
        f"--{tool} needs {tool}, which is not installed. Run in its checkout: "
        f"pip install -c constraints.txt '.[{tool}]'"
    )
