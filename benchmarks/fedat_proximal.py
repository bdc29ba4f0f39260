"""Whether FedAT is held back by the proximal term of its paper, which is no setting here.

    python -m benchmarks.fedat_proximal

The rows `fedat` and `fedat, by samples` of studies/fedat.toml with three seeds, and the same with
mu / 2 |w - w_start|^2 added to every loss: the term is put into the trainer's steps. A quarter of
an hour of one core.
"""

from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from fedcompass.aggregation.layout import FlatState
from fedcompass.simulation.run import simulate
from fedcompass.sweeps.sweep_file import Sweep
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.problem import Inputs

STUDY = Path(__file__).parents[1] / "studies" / "fedat.toml"
ROWS = ("fedat", "fedat, by samples")
SEEDS = (20, 21, 22)
MUS = (0.0, 0.1, 0.4)


def with_proximal_term(mu: float) -> None:
    """Draw every later step of this process back to the model that its round began with."""
    begin, mean_loss = ModelSteps.begin, ModelSteps._mean_loss
    starts: dict[ModelSteps, list[Tensor]] = {}

    def begin_there(self: ModelSteps, start: FlatState, rate: float) -> None:
        begin(self, start, rate)
        starts[self] = [weight.detach().clone() for weight in self.model.trained()]

    def drawn_back(self: ModelSteps, inputs: Inputs, targets: Tensor) -> Tensor:
        pairs = zip(self.model.trained(), starts[self], strict=True)
        apart = torch.stack([mse_loss(now, then, reduction="sum") for now, then in pairs]).sum()
        return mean_loss(self, inputs, targets) + mu / 2 * apart

    ModelSteps.begin, ModelSteps._mean_loss = begin_there, drawn_back  # type: ignore[method-assign]


def main() -> None:
    """Print a line for each row and mu: runs that reach the target, and their best accuracies."""
    torch.set_num_threads(1)
    runs = defaultdict(list)
    for planned in Sweep.from_toml(STUDY).plan():
        if planned.labels["row"] in ROWS and planned.experiment.seed in SEEDS:
            runs[planned.labels["row"]].append(planned.experiment)
    print("| row | mu | reached | best accuracies |\n|---|---|---|---|")
    plain = ModelSteps.begin, ModelSteps._mean_loss
    for mu in MUS:
        ModelSteps.begin, ModelSteps._mean_loss = plain  # type: ignore[method-assign]
        if mu:
            with_proximal_term(mu)
        for row, experiments in runs.items():
            results = [simulate(experiment, executor="serial") for experiment in experiments]
            reached = sum(result.summary["time_to_target"] is not None for result in results)
            best = " ".join(f"{100 * (result.top() or 0):.0f}" for result in results)
            print(f"| {row} | {mu:g} | {reached} of {len(results)} | {best} |", flush=True)


if __name__ == "__main__":
    main()
