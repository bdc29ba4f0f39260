"""Parameters that do not train (`requires_grad=False`) stay at home: only the rest travels."""

import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedcompass.experiment import Experiment
from fedcompass.report import RunFiles
from fedcompass.simulation.run import ExecutorName, simulate
from fedcompass.training.bound import build_module
from fedcompass.training.problem import Problem


class Adapted(nn.Module):
    """A frozen layer and a low-rank adapter beside it, as LoRA has them."""

    def __init__(self, *, random_base: bool = False) -> None:
        super().__init__()
        self.base = nn.Linear(6, 4)
        if not random_base:
            with torch.no_grad():
                self.base.weight.copy_(torch.linspace(-1, 1, 24).view(4, 6))
                self.base.bias.zero_()
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def problem(random_base: bool = False) -> Problem:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 6, generator=generator), torch.arange(80) % 4
    parts = [torch.arange(client, 80, 4) for client in range(4)]
    model = partial(Adapted, random_base=random_base)
    return Problem.from_tensors(model, train=(x, y), test=(x, y), parts=parts)


def experiment() -> Experiment:
    settings = {"name": "fedcompass", "min_steps": 2, "max_steps": 8}
    fleet = {"paces": [0.1, 0.1, 0.2, 0.3]}
    return Experiment(fleet=fleet, strategy=settings, horizon=6.0, local={"batch_size": 8})


@pytest.mark.parametrize("executor", ["serial", "processes", "stacked"])
@pytest.mark.parametrize("random_base", [False, True])
def test_only_the_adapter_is_trained_and_the_result_is_whole(
    executor: ExecutorName, random_base: bool, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "tasks of this model train by one at a time")
        result = simulate(
            experiment(),
            problem=problem(random_base),
            executor=executor,
            workers=2,
            folder=tmp_path / "run",
        )
    made = build_module(problem(random_base), 0).state_dict()
    assert result.model.keys() == made.keys()
    for name, tensor in made.items():
        assert torch.equal(result.model[name], tensor) == name.startswith("base.")
    whole = load_file(tmp_path / "run" / "final.safetensors")
    Adapted().load_state_dict(whole)


def test_the_executors_agree_on_a_frozen_part_that_the_seed_draws() -> None:
    serial = simulate(experiment(), problem=problem(random_base=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stacked = simulate(experiment(), problem=problem(random_base=True), executor="stacked")
    for name, tensor in serial.model.items():
        torch.testing.assert_close(stacked.model[name], tensor)


def test_another_frozen_part_is_another_problem(tmp_path: Path) -> None:
    plain = simulate(experiment(), problem=problem()).experiment.fingerprint
    other = simulate(experiment(), problem=problem(random_base=True)).experiment.fingerprint
    assert plain != other


def test_a_runs_bytes_and_summary_count_only_what_travels(tmp_path: Path) -> None:
    result = simulate(experiment(), problem=problem(), folder=tmp_path / "run")
    adapter = 6 * 2 + 2 * 4
    header = next(RunFiles(tmp_path / "run").records())
    assert header["model_bytes"] == 4 * adapter  # which the report's page takes before the file's
    assert result.summary["parameters_sent"] == adapter
    assert result.summary["parameters"] == adapter + 6 * 4 + 4
    assert "20 of 48 parameters travel" in repr(result)
