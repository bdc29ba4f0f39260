"""The work in fedcompass's simulator, serial executor; argument: fedavg or fedasync."""

import sys
import time

import torch

from benchmarks.peers.workload import BATCH, CLIENTS, RATE, ROUNDS, STEPS, MnistCnn, Part, measure
from fedcompass.experiment import Experiment
from fedcompass.simulation.run import simulate
from fedcompass.training.problem import Problem


def main() -> None:
    strategy = sys.argv[2]
    updates = ROUNDS if strategy == "fedavg" else ROUNDS * CLIENTS

    def run(data: list[Part]) -> tuple[float, int]:
        x = torch.cat([part[0] for part in data])
        y = torch.cat([part[1] for part in data])
        rows = torch.arange(len(y)).chunk(CLIENTS)
        problem = Problem.from_tensors(
            MnistCnn, train=(x, y), test=(x[:BATCH], y[:BATCH]), parts=rows
        )
        experiment = Experiment(
            fleet={"clients": CLIENTS, "speed": "homogeneous", "mean_seconds_per_step": 0.1},
            local={"optimizer": "adam", "learning_rate": RATE, "batch_size": BATCH},
            evaluation={"every_updates": "none"},
            strategy={"name": strategy, "steps": STEPS},
            horizon=1e6,
            max_updates=updates,
        )
        began = time.perf_counter()
        result = simulate(experiment, problem=problem)
        seconds = time.perf_counter() - began
        assert result.summary["global_updates"] == updates
        return seconds, ROUNDS * CLIENTS * STEPS  # a task is trained when its answer is needed

    measure(run)


if __name__ == "__main__":
    main()
