"""Your own model and data: points in a ring or not, four clients of very different speed."""

import torch
from torch import nn

import fedcompass

torch.manual_seed(0)
x = 2 * torch.randn(2000, 2)
y = (x.norm(dim=1) > 2).long()


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))


parts = [torch.arange(client, 1600, 4) for client in range(4)]  # each client's rows
problem = fedcompass.Problem.from_tensors(
    model, train=(x[:1600], y[:1600]), test=(x[1600:], y[1600:]), parts=parts
)
fleet = {"paces": [0.01, 0.02, 0.04, 0.08]}  # seconds per step
experiment = fedcompass.Experiment(fleet=fleet, strategy={"name": "fedcompass"}, horizon=20)
result = fedcompass.simulate(experiment, problem=problem)
print(f"updates per client: {result.summary['updates_per_client']}")
print(f"reached 95%: {result.time_to(0.95) is not None}")
