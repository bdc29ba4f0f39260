"""`fedcompass flower new`: a project that runs as it is."""

import json
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from tests.flower.fake_grid import FakeGrid, server_context
from typer.testing import CliRunner

from fedcompass.cli.app import app as command
from fedcompass.errors import ProjectError
from fedcompass.flower import app
from fedcompass.flower.flower_settings import FlowerSettings, read_settings
from fedcompass.flower.new_project import write_project


def new(folder: Path) -> str:
    done = CliRunner().invoke(command, ["flower", "new", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def flat(table: dict[str, object], prefix: str = "") -> dict[str, object]:
    """As Flower hands a project's settings over."""
    found: dict[str, object] = {}
    for key, value in table.items():
        found |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return found


def test_it_says_what_is_where_and_how_to_run_it(tmp_path: Path) -> None:
    folder = tmp_path / "my-project"
    assert new(folder).splitlines() == [
        f"{folder}: a Flower project whose server is fedcompass",
        "  my_project/task.py        model, data, training and test: make them yours",
        "  my_project/client_app.py  how a client answers",
        "  pyproject.toml  strategy and settings",
        "run it, with two simulated clients:",
        f"  FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run {folder} --stream",
    ]


@pytest.mark.usefixtures("in_a_run")
def test_the_project_learns_its_toy_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new(tmp_path / "my-project")
    settings = tomllib.loads((tmp_path / "my-project" / "pyproject.toml").read_text())
    apps = settings["tool"]["flwr"]["app"]
    assert apps["components"]["serverapp"] == "fedcompass.flower:app"
    monkeypatch.syspath_prepend(str(tmp_path / "my-project"))
    module, _, name = apps["components"]["clientapp"].partition(":")
    grid = FakeGrid({1: "", 2: ""}, getattr(import_module(module), name), {"batch-size": 32})
    context = server_context(tmp_path / "runs")
    context.run_config = flat(apps["config"]) | {  # type: ignore[assignment]
        "fedcompass.folder": str(tmp_path / "runs"),
        "fedcompass.poll_interval": 0.001,
    }
    app(grid.as_grid(), context)
    rows = (tmp_path / "runs" / "7" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["eval_acc"] > 0.8 > json.loads(rows[0])["eval_acc"]
    for loaded in [loaded for loaded in sys.modules if loaded.startswith("my_project")]:
        monkeypatch.delitem(sys.modules, loaded)


def test_what_can_be_changed_for_one_run_is_listed(tmp_path: Path) -> None:
    # `flwr run -c` refuses a key that the pyproject.toml does not have.
    write_project(tmp_path / "p")
    config = tomllib.loads((tmp_path / "p" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    listed = config["config"]["fedcompass"]
    assert set(FlowerSettings.model_fields) <= set(listed)
    read_settings(flat(config["config"]))


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine").touch()
    with pytest.raises(ProjectError, match="is there already; choose a new or empty folder"):
        write_project(tmp_path / "p")


@pytest.mark.parametrize("name", ["3d", "class", "a.b"])
def test_a_name_that_python_cannot_import_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=f"'{name}' cannot name a Python package"):
        write_project(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
