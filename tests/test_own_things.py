"""Things of one's own by name: data, model, loss, metric and strategy, from the command line."""

import json
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcompass.settings.training import METRICS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from fedcompass.cli import main

DIGITS = """
import numpy as np
from torch import nn

def problem():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 4, 240)
    x = draw.normal(size=(240, 8)) + 2 * np.eye(8)[y]
    return {"train": (x[:200], y[:200]), "test": (x[200:], y[200:]), "model": net}

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def wide(input_shape, classes):
    return nn.Sequential(nn.Linear(*input_shape, classes))

def sized_problem():
    return {**problem(), "model": wide}

def named_problem():
    return {**problem(), "model": "mlp"}

def named_loss():
    x, y, u, v = house_prices()
    return {"train": (x, y), "test": (u, v), "model": slope, "loss": "mse"}

def own_loss():
    return {**named_loss(), "loss": lambda outputs, targets: (outputs[:, 0] - targets).abs().mean()}

def misnamed_loss():
    return {**named_loss(), "loss": "mze"}

def misnamed_model():
    return {**problem(), "model": "mlpp"}

def built_model():
    return {**problem(), "model": net()}

def asking_model():
    return {**problem(), "model": lambda hidden: net()}

def house_prices():
    x = np.linspace(0, 1, 120)[:, None]
    return x[:100], 3 * x[:100, 0], x[100:], 3 * x[100:, 0]

def slope():
    return nn.Linear(1, 1)

def of_two_clients():
    (x, y), test = problem()["train"], problem()["test"]
    return {"train": [(x[:150], y[:150]), (x[150:], y[150:])], "test": test, "model": net}
"""

MINE = """
from pydantic import Field
from torch.nn import functional

from fedcompass.aggregation import WeightedSum
from fedcompass.scheduling.immediate import Immediate
from fedcompass.scheduling.policy import FixedStepsSettings
from fedcompass.settings.aggregation import AggregationSettings
from fedcompass.strategies import PolicyKind, Recipe
from fedcompass.training import metric

class OwnSettings(FixedStepsSettings):
    patience: int = Field(default=3, ge=1, description="how long it waits")

round_robin = PolicyKind(OwnSettings, Immediate)

class ClipSettings(AggregationSettings):
    longest: float = Field(default=1.0, gt=0, description="longest update")

class Clipped(WeightedSum):
    def fold(self, buffer, update, contribution):
        length = float(update.trainable.norm())
        update.trainable.mul_(min(1.0, self.longest / length) if length else 1.0)
        return super().fold(buffer, update, contribution)

def clipping(model, settings):
    made = Clipped(model, settings)
    made.longest = settings.longest
    return made

class Broken(WeightedSum):
    def commit(self, buffers, *rest):
        raise ZeroDivisionError("no weight")

broken = Recipe("fails", "compass", aggregator=Broken)
clipped = Recipe("compass, clipped", "compass", aggregator=clipping, settings=ClipSettings)

def pinball(outputs, targets):
    return functional.l1_loss(outputs.squeeze(1), targets)

@metric(higher_is_better=False)
def worst(outputs, targets):
    return (outputs.squeeze(-1) - targets).abs().max()

@metric(higher_is_better=True, share=True)
def right(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()

def undirected(outputs, targets):
    return 0.0

def half(outputs, targets):
    return functional.cross_entropy(outputs, targets) / 2
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "digits.py").write_text(DIGITS)
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(METRICS)
    yield tmp_path
    METRICS.clear()
    METRICS.update(before)
    for name in ("digits", "mine"):
        sys.modules.pop(name, None)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Command":
    return Command(monkeypatch, capsys)


class Command:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, line: str, code: int = 0) -> str:
        self._monkeypatch.setattr(sys, "argv", ["fedcompass", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, out + err
        return out + err


SHORT = "--horizon 4 --max-steps 5 --min-steps 2"
FIXED = "--horizon 4 --steps 5 --strategy fedavg"
STRATEGIES = "--strategies fedavg,fedcompass,./mine.py:round_robin,./mine.py:clipped"


def is_one_line(said: str) -> bool:
    """Whether an error is told in one line, the last, below what the command printed before."""
    return said.strip().splitlines()[-1].startswith("error: ") and "Traceback" not in said


def test_compare_runs_own_data_and_own_strategies_beside_ours(command: Command) -> None:
    said = command(
        f"compare --data ./digits.py:problem {STRATEGIES} --seeds 1 {SHORT} --workers 1 --steps 5"
    )
    assert "digits.problem, class partition, 5 clients" in said
    assert "where none are given (own data: a fifth of its steps)" in " ".join(said.split())
    assert "mine.round_robin" in said
    assert "mine.clipped" in said
    folders = {path.name for path in Path("runs/compare").iterdir() if path.is_dir()}
    assert {"fedavg-seed0", "mine.round_robin-seed0", "mine.clipped-seed0"} <= folders
    assert Path("runs/compare/report.html").is_file()


@pytest.mark.parametrize("executor", ["serial", "processes", "stacked"])
def test_every_executor_of_a_run_trains_own_things(command: Command, executor: str) -> None:
    said = command(
        f"run --data ./digits.py:problem --model ./digits.py:wide --loss ./mine.py:half {SHORT} "
        f"--strategy ./mine.py:clipped --executor {executor} --workers 2 --name own"
    )
    assert "mine.clipped on digits.problem (digits.wide): 5 clients" in said
    kept = tomllib.loads(Path("runs/own/experiment.toml").read_text())
    assert kept["data"]["name"] == f"{Path.cwd()}/digits.py:problem"
    assert len(kept["code"]) == 4
    summary = json.loads(Path("runs/own/summary.json").read_text())
    assert summary["strategy"] == "mine.clipped"
    assert summary["global_updates"] > 0


SWEEP = """
seeds = 1
[base]
horizon = 4.0
data.name = "./digits.py:problem"
evaluation.target_metric = "./mine.py:right"
strategy = { steps = 5, min_steps = 2, max_steps = 5 }
[grid]
"strategy.name" = ["fedavg", "./mine.py:clipped"]
model = ["./digits.py:wide", "mlp"]
"""


@pytest.mark.parametrize("how", ["--workers 2", "--executor serial", "--executor stacked"])
def test_every_executor_of_a_sweep_trains_own_things(command: Command, how: str) -> None:
    Path("own.toml").write_text(SWEEP)
    assert "4 of 4" in command(f"sweep own.toml {how}")
    assert "mine.clipped" in command("table own.toml")
    assert "4 of 4" in command(f"sweep own.toml {how}")
    assert len(Path("runs/own/results.jsonl").read_text().splitlines()) == 5  # header, 4 runs


def test_a_sweep_whose_own_code_has_changed_says_so_and_runs_it_again(command: Command) -> None:
    Path("own.toml").write_text(SWEEP)
    command("sweep own.toml --executor serial")
    with Path("mine.py").open("a") as file:
        file.write("\n# another version\n")
    said = command("sweep own.toml --executor serial")
    assert "mine.py has changed since" in said
    assert len(Path("runs/own/results.jsonl").read_text().splitlines()) == 9  # all use its metric


def test_numbers_are_learned_with_mse(command: Command) -> None:
    said = command(
        f"run --data ./digits.py:house_prices --model ./digits.py:slope --loss mse {FIXED} "
        "--name prices --executor serial"
    )
    assert "best mae" in said
    assert "iid partition" in said


def test_an_own_loss_and_an_own_metric_with_its_direction(command: Command) -> None:
    said = command(
        f"run --data ./digits.py:house_prices --model ./digits.py:slope --loss ./mine.py:pinball "
        f"--metric ./mine.py:worst --partition iid {FIXED} --name prices "
        "--executor serial"
    )
    assert "best mine.worst" in said
    rows = [json.loads(line) for line in Path("runs/prices/metrics.jsonl").read_text().splitlines()]
    assert {"loss", "mine.worst"} <= set(rows[-1])
    summary = json.loads(Path("runs/prices/summary.json").read_text())
    assert summary["top_mine.worst"] == min(row["mine.worst"] for row in rows)


@pytest.mark.parametrize("data", ["sized_problem", "named_problem"])
def test_a_dicts_model_is_called_and_named_as_the_option_is(command: Command, data: str) -> None:
    said = command(f"run --data ./digits.py:{data} {FIXED} --name mine --executor serial")
    assert "top accuracy" in said


def test_a_dicts_loss_by_name_does_what_the_option_does(command: Command) -> None:
    command(f"run --data ./digits.py:named_loss {FIXED} --name dict --executor serial")
    command(f"run --data ./digits.py:named_loss --loss mse {FIXED} --name option --executor serial")
    of_dict, of_option = (
        Path(f"runs/{name}/metrics.jsonl").read_text() for name in ("dict", "option")
    )
    assert of_dict == of_option
    assert "mae" in of_dict


def test_with_a_dicts_own_loss_the_metric_loss_is_all_that_is_measured(command: Command) -> None:
    command(
        f"run --data ./digits.py:own_loss --metric loss --partition iid {FIXED} --name mine "
        "--executor serial"
    )
    kept = tomllib.loads(Path("runs/mine/experiment.toml").read_text())
    assert kept["evaluation"]["metrics"] == ["loss"]


def test_data_that_come_by_client_bring_their_clients(command: Command) -> None:
    said = command(f"run --data ./digits.py:of_two_clients {SHORT} --name two --executor serial")
    assert "2 clients" in said
    assert "own partition" in said


def test_settings_of_an_own_rule_and_scheduler_are_checked_like_ours(command: Command) -> None:
    own = "run --data ./digits.py:problem --no-train --horizon 2 --strategy ./mine.py"
    said = command(f"{own}:clipped --set strategy.longest=-1", 1)
    assert "longest is -1; allowed: a number above 0" in said
    said = command(f"{own}:round_robin --set strategy.patience=0", 1)
    assert "patience is 0; allowed: a whole number at least 1" in said
    said = command(f"{own}:clipped --set strategy.longst=1", 1)
    assert "(did you mean 'longest'?)" in said
    assert command(f"{own}:clipped --set strategy.longest=2 --name kept")
    kept = tomllib.loads(Path("runs/kept/experiment.toml").read_text())
    assert kept["strategy"]["longest"] == 2
    said = command("strategies ./mine.py:clipped")
    assert "compass, clipped" in said
    assert "longest" in said
    assert "clipping, its own; what it leaves to WeightedSum:" in said
    assert "w -= Σ st(u) p_i Δ_i" in said
    assert 'profile="as-run"' not in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--strategy fedfoo", "or your own: a Recipe named package.module:name or FILE.py:name"),
        ("--strategy ./mine.py:nothing", "mine.py has no nothing; it has: OwnSettings"),
        ("--strategy ./mine.py:nothing", ", clipped, "),
        ("--strategy ./mine.py:Clipped", "is the class Clipped; allowed: a fedcompass.strategies."),
        ("--strategy ./none.py:x", "there is no Python file"),
        ("--metric ./mine.py:undirected", "is the function undirected; allowed: a function"),
        ("--loss ./mine.py:clipped", "is a fedcompass.Recipe; allowed: a function (outputs,"),
        ("--metric f1", "evaluation: 'f1' is no metric; there are: loss, accuracy, balanced"),
        ("--loss mze", "'mze' is no loss (did you mean 'mse'?); there are: "),
        ("--loss mze", "your own is named package.module:name or FILE.py:name"),
        ("--data ./digits.py:nothing", "digits.py has no nothing; it has: problem"),
        ("--data ./digits.py:house_prices --model mlp", "needs data with classes"),
        (
            "--data ./digits.py:house_prices --model ./digits.py:slope",
            "partition.kind is 'class' (--partition), and this dataset has no class per sample "
            "(its targets are numbers, or none); choose 'iid'",
        ),
        (
            "--data ./digits.py:house_prices --model ./digits.py:slope --partition iid",
            "no loss is named; name one: --loss mse for numbers",
        ),
        ("--data ./digits.py:of_two_clients --partition iid", "leave the partition out"),
        ("--data ./digits.py:of_two_clients --clients 3", "are those of 2 clients"),
        (
            "--data ./digits.py:misnamed_loss",
            "data './digits.py:misnamed_loss': 'loss' of its dict is 'mze'; allowed: a function "
            "(outputs, targets) itself, or one of ours by its name: cross_entropy, ",
        ),
        (
            "--data ./digits.py:misnamed_model",
            "'model' of its dict is 'mlpp'; allowed: a function that makes a new torch.nn.Module "
            "itself, or one of ours by its name: mnist_cnn, resnet18, mlp",
        ),
        ("--data ./digits.py:built_model", "'model' of its dict is a torch.Sequential; allowed: a"),
        (
            "--data ./digits.py:asking_model",
            "the model of data './digits.py:asking_model' asks for an argument 'hidden'; it can "
            "have input_shape and classes",
        ),
        ("--data ./digits.py:net", "returned a torch.Sequential; allowed: a fedcompass.Problem"),
    ],
)
def test_a_wrong_thing_says_what_it_is_and_what_is_accepted(
    command: Command, options: str, message: str
) -> None:
    said = command(f"run {options}", 1)
    assert message in said
    assert is_one_line(said)
    assert not Path("runs").exists()


def test_an_own_rule_that_raises_is_told_in_one_line_with_its_place(command: Command) -> None:
    said = command(
        f"run --data ./digits.py:problem --strategy ./mine.py:broken {SHORT} --executor serial", 1
    )
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert "your code raised ZeroDivisionError: no weight (mine.py:" in line
    assert "Traceback" not in said


def test_a_run_with_own_things_is_resumed_from_another_folder_unless_the_code_has_changed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedcompass.simulation.engine import Simulation

    options = f"--data ./digits.py:problem --strategy ./mine.py:clipped {SHORT} --executor serial"
    command(f"run {options} --name whole")
    events = iter(range(6))

    def stop(_: Simulation) -> None:
        if next(events, None) is None:
            raise KeyboardInterrupt

    from fedcompass.experiment import Experiment
    from fedcompass.simulation.run import simulate

    experiment = Experiment.from_toml(Path("runs/whole/experiment.toml"))
    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, folder="runs/cut", checkpoint_every=0.0, on_progress=stop)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with Path("../mine.py").open("a") as file:
        file.write("# changed")
    said = command("run --resume ../runs/cut --executor serial", 1)
    assert "mine.py, which has changed since (or is gone); put it back to resume" in said
    Path("../mine.py").write_text(MINE)
    command("run --resume ../runs/cut --executor serial")
    whole, cut = (
        json.loads(Path(f"../runs/{n}/summary.json").read_text()) for n in ("whole", "cut")
    )
    assert whole == cut


def test_the_split_of_own_data_can_be_looked_at(command: Command) -> None:
    said = command("partition ./digits.py:problem --clients 3")
    assert "digits.problem, class partition, 3 clients, seed 0" in said
    assert "200 training samples" in said
    said = command("partition ./digits.py:of_two_clients", 1)
    assert "come by client: there is nothing to split" in said
    said = command("partition ./digits.py:house_prices", 1)
    assert "--kind is 'class', and this dataset has no class per sample" in said
