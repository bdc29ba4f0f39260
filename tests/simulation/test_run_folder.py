"""A run's folder: complete, readable by anyone, never overwritten unasked."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.simulation.tiny_runs import (
    RECORDS,
    STRATEGIES,
    Stopped,
    eventful,
    experiment,
    problem,
    stop_after,
)
from torch import Tensor
from torch.nn import functional

from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.replay import replay
from fedcompass.simulation.experiment_folder import create_run, resume_run
from fedcompass.simulation.run import simulate

pytestmark = pytest.mark.whatever_is_learned  # files, names and twins


def strict_json(text: str) -> Any:
    """Read JSON as other languages do: NaN and Infinity are no numbers."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def not_a_number_when_measured(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = functional.cross_entropy(outputs, targets)
    return loss if torch.is_grad_enabled() else loss * torch.nan


def test_a_finished_run_has_its_records_and_no_other_files(tmp_path: Path) -> None:
    result = simulate(experiment(), problem=problem(), folder=tmp_path / "runs" / "one")
    assert result.folder == tmp_path / "runs" / "one"
    assert sorted(path.name for path in result.folder.iterdir()) == sorted(
        [*RECORDS, "origin.json"]
    )


def test_the_records_say_what_the_result_says(tmp_path: Path) -> None:
    result = simulate(eventful("fedbuff"), problem=problem(), folder=tmp_path / "run")
    folder = tmp_path / "run"
    assert Experiment.from_toml(folder / "experiment.toml") == result.experiment
    assert json.loads((folder / "summary.json").read_text()) == result.summary
    assert json.loads((folder / "clients.json").read_text()) == result.clients
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.curve
    for name, tensors in (("final", result.model), ("best", result.best_model)):
        saved = load_file(folder / f"{name}.safetensors")
        assert saved.keys() == tensors.keys()
        assert all(torch.equal(saved[key], tensors[key]) for key in tensors)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_journal_of_a_run_replays_with_the_same_commands(name: str, tmp_path: Path) -> None:
    result = simulate(eventful(name), problem=problem(), folder=tmp_path / "run")
    replayed = replay(tmp_path / "run" / "journal.jsonl")
    assert replayed.events > 25
    assert replayed.scheduler.version == result.summary["global_updates"]
    pending = [[f.client, f.task, f.staleness] for f in replayed.scheduler.pending()]
    assert pending == result.pending == result.summary["pending"]


def test_a_measurement_that_is_not_a_number_is_null_in_the_records(tmp_path: Path) -> None:
    broken = problem(loss=not_a_number_when_measured)
    chosen = experiment(evaluation={"target_metric": "loss"}, target=0.1)
    result = simulate(chosen, problem=broken, folder=tmp_path / "run")
    for name in ("summary.json", "clients.json"):
        strict_json((tmp_path / "run" / name).read_text())
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert strict_json(line)["loss"] is None
    assert strict_json((tmp_path / "run" / "summary.json").read_text())["top_loss"] is None
    assert result.time_to(0.1) is None


def test_metrics_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl cannot be written: "):
        folder.write_metrics([{"time": 0.0, "version": 0, "loss": 1.0}])


def test_the_metrics_can_be_read_while_a_run_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        simulate(
            experiment(),
            problem=problem(),
            folder=tmp_path / "run",
            checkpoint_every=0.0,
            on_progress=stop_after(10),
        )
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) > 3


def test_a_folder_is_never_overwritten_unasked(tmp_path: Path) -> None:
    simulate(experiment(), problem=problem(), folder=tmp_path / "run")
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match=r"exists already\. Choose another name"):
        simulate(experiment(seed=1), problem=problem(), folder=tmp_path / "run")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before


def test_a_folder_is_replaced_when_asked(tmp_path: Path) -> None:
    simulate(experiment(), problem=problem(), folder=tmp_path / "run")
    folder = create_run(tmp_path / "run", experiment(seed=1), overwrite=True)
    assert [path.name for path in folder.path.iterdir()] == ["experiment.toml"]
    assert simulate(problem=problem(), folder=folder).summary["seed"] == 1


def test_only_a_runs_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match=r"it has no experiment\.toml"):
        create_run(tmp_path, experiment(), overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    simulate(experiment(), problem=problem(), folder=tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"is finished; see its summary\.json"):
        resume_run(tmp_path / "run")


def test_a_folder_is_not_used_for_a_second_run(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", experiment())
    simulate(problem=problem(), folder=folder)
    with pytest.raises(RunFolderError, match="is finished"):
        simulate(problem=problem(), folder=folder)
    assert replay(folder.journal).events


def test_something_else_than_a_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run's folder"):
        resume_run(tmp_path)
    with pytest.raises(RunFolderError, match="is not a run's folder"):
        resume_run(tmp_path / "nowhere")


def test_damaged_settings_are_one_clear_line(tmp_path: Path) -> None:
    create_run(tmp_path / "run", experiment())
    (tmp_path / "run" / "experiment.toml").write_text("seed = = 1")
    with pytest.raises(SettingsError, match="is not valid TOML"):
        resume_run(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot be made: Not a directory; choose another"):
        create_run(tmp_path / "file" / "run", experiment())


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="executor is 'gpu'"):
        simulate(
            experiment(),
            problem=problem(),
            executor="gpu",  # type: ignore[arg-type]
            folder=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_folder_that_another_process_is_running_is_left_alone(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", Experiment())
    folder.journal.touch()
    with (
        folder.lock(),
        pytest.raises(RunFolderError, match="another process is running"),
        resume_run(tmp_path / "run").lock(),
    ):
        pass
    with folder.lock():
        pass  # free again
