"""Run folders as the page sees them."""

import json
import re
from pathlib import Path

import pytest
from tests.simulation.tiny_runs import experiment, problem

from fedcompass.errors import RunFolderError
from fedcompass.report import RunFiles, find_runs
from fedcompass.report.run_files import plain_json
from fedcompass.simulation.run import simulate


def test_a_finished_simulation_has_settings_summary_clients_and_the_models_size(
    eventful_run: Path,
) -> None:
    facts = RunFiles(eventful_run).facts()
    assert facts["name"] == "eventful"
    assert facts["kind"] == "simulation"
    assert facts["finished"] is True
    assert facts["settings"]["strategy"]["name"] == "fedcompass"
    assert facts["summary"] == json.loads((eventful_run / "summary.json").read_text())
    assert len(facts["clients"]) == 4
    parameters = 6 * 5 + 5 + 5 * 2 + 2 + 4 * 5  # two linear layers; scale, shift, mean, variance
    assert facts["model_bytes"] == 4 * parameters + 8  # and the counter of batches


def test_a_deployment_has_other_settings_and_may_lack_everything_else(tmp_path: Path) -> None:
    (tmp_path / "deployment.toml").write_text('since = 2026-01-01\nlimit = inf\nname = "site"\n')
    facts = RunFiles(tmp_path).facts()
    assert facts["kind"] == "deployment"
    assert facts["finished"] is False
    assert json.loads(plain_json(facts["settings"])) == {
        "since": "2026-01-01",
        "limit": None,
        "name": "site",
    }
    assert facts["summary"] is facts["clients"] is facts["model_bytes"] is None


def test_a_journal_alone_is_a_finished_schedule(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"journal":1}\n')
    facts = RunFiles(tmp_path).facts()
    assert (facts["kind"], facts["finished"], facts["settings"]) == ("schedule", True, None)


def test_a_folder_of_runs_stands_for_its_runs_in_order_and_each_run_counts_once(
    tmp_path: Path,
) -> None:
    for name in ("b", "a", "other"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "journal.jsonl").touch()
    found = find_runs([tmp_path / "b", tmp_path])
    assert [run.path.name for run in found] == ["b", "a"]


def test_what_holds_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=re.escape(f"{tmp_path} holds no run; give a run's")):
        find_runs([tmp_path])
    with pytest.raises(RunFolderError, match="is not a folder"):
        find_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize("name", ["summary.json", "experiment.toml"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "experiment.toml").touch()
    (tmp_path / name).write_text("{")
    with pytest.raises(RunFolderError, match=f"{name} cannot be read"):
        RunFiles(tmp_path).facts()


def test_a_damaged_model_only_means_that_bytes_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").touch()
    (tmp_path / "final.safetensors").write_bytes(b"\x04\0\0\0\0\0\0\0null")
    assert RunFiles(tmp_path).facts()["model_bytes"] is None


def test_text_cannot_leave_a_script_element() -> None:
    text = plain_json({"name": "</script><script>alert(1)</script>&"})
    assert not set("<>&") & set(text)
    assert json.loads(text)["name"] == "</script><script>alert(1)</script>&"


def test_the_stamps_change_when_a_run_ends(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run")
    before = run.stamps()
    simulate(experiment(), problem=problem(), folder=run.path)
    assert run.stamps() != before
