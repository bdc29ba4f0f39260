"""What `status`, the console and the last line say of runs that a server wrote."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.fake_network import Clock, FakeNetwork, federation, settings, sites
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.deploy_progress import DeployProgress
from fedcompass.cli.deploy_words import summary_line
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.run_view import RunView

pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "federation", "127.0.0.1:9092", ["site-1", "site-2"])
    return tmp_path / "federation"


def ran(project: Path, measured: dict[str, float] | None, **changes: Any) -> None:
    """A run of two sites to its second version; every model is as good as this.

    `epsilon`: what the sites claim to have spent, in their order.
    """
    evaluate = None if measured is None else (lambda *_: dict(measured))
    made = sites(0.1, 0.2)
    for site, epsilon in zip(made.values(), changes.pop("epsilon", ()), strict=False):
        site.spoil = lambda reply, _, e=epsilon: replace(reply, epsilon=e, delta=1e-5)
    chosen = settings(max_updates=2, **changes)
    federation(project / "run", FakeNetwork(Clock(), made), chosen, evaluate=evaluate).run()


def status(project: Path) -> list[str]:
    done = CliRunner().invoke(app, ["deploy", "status", str(project)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout.splitlines()


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_status_shows_a_dash_for_a_metric_that_is_no_number(project: Path, value: float) -> None:
    ran(project, {"loss": value, "accuracy": 0.25, "hausdorff": value})
    first, header, *rows = status(project)
    assert first.endswith("version 2  accuracy 25.0%  loss -  hausdorff -")
    assert header.split() == ["site", "last", "updates", "steps", "at", "(s)"]
    assert [row.split()[0] for row in rows] == ["site-1", "site-2"]


def test_status_of_a_run_of_which_nothing_was_measured_shows_the_rest(project: Path) -> None:
    ran(project, None)
    assert status(project)[0].endswith(" s, version 2")


@pytest.mark.parametrize(
    ("target", "console"),
    [
        ({"target_metric": "hausdorff", "higher_is_better": False}, "hausdorff 3.25"),
        ({}, "accuracy 75.0%  hausdorff 3.25"),
        ({"target_metric": "concordance"}, "hausdorff 3.25"),  # the app does not measure it
    ],
)
def test_the_console_shows_the_target_metric_and_those_of_ones_own(
    project: Path, capsys: pytest.CaptureFixture[str], target: dict[str, Any], console: str
) -> None:
    ran(project, {"loss": 0.5, "accuracy": 0.75, "hausdorff": 3.25}, **target)
    DeployProgress().show(RunView(project / "run"))
    assert f"version 2  {console}  " in capsys.readouterr().err


def test_the_console_shows_a_built_in_metric_where_nothing_else_is_measured(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(project, {"loss": nan})
    DeployProgress().show(RunView(project / "run"))
    assert "version 2  loss -  " in capsys.readouterr().err


def test_no_epsilon_that_a_site_claims_makes_a_line_long(project: Path) -> None:
    ran(project, None, epsilon=(1.5, 1e308))
    lines = status(project)
    assert max(map(len, lines)) <= 60
    assert [line.split()[4] for line in lines[1:]] == ["epsilon", "1.50", "1e+308"]
    assert "; epsilon spent: site-1 1.50, site-2 1e+308; see " in summary_line(project / "run")
