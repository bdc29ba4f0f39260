"""The work in APPFL's virtual-time simulator; arguments: fedavg or fedasync, then on or off.

"on" is its default (`optimize_memory`: a full garbage collection at every exchange).
"""

import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

if importlib.util.find_spec("piq") is None:
    # APPFL imports it for image-quality reports; it needs torchvision and is not used here.
    sys.modules["piq"] = ModuleType("piq")

from appfl.agent import SimClientAgent, SimServerAgent
from appfl.vsim import AsyncSimDriver, ClientProfile, SyncSimDriver, VsimLogger
from torch.utils.data import TensorDataset

from benchmarks.peers import workload
from benchmarks.peers.workload import BATCH, CLIENTS, RATE, ROUNDS, STEPS, Part, measure

STRATEGY, OPTIMIZE = sys.argv[2], sys.argv[3] == "on"
UPDATES = ROUNDS if STRATEGY == "fedavg" else ROUNDS * CLIENTS

METRIC = """import numpy as np


def accuracy(y_true, y_pred):
    return float((np.asarray(y_pred).argmax(axis=1) == np.asarray(y_true)).mean())
"""


def settings(folder: Path) -> dict[str, Any]:
    """The server's and the clients' settings in APPFL's one-file form."""
    (folder / "metric.py").write_text(METRIC)
    optimize = {"optimize_memory": OPTIMIZE}
    fedavg = STRATEGY == "fedavg"
    return {
        "model_configs": {"model_path": workload.__file__, "model_name": "MnistCnn"},
        "algorithm_configs": {
            "device": "cpu",
            "num_global_epochs": UPDATES,
            "scheduler": "SyncScheduler" if fedavg else "AsyncScheduler",
            "scheduler_kwargs": {"num_clients": CLIENTS, **optimize},
            "aggregator": "FedAvgAggregator" if fedavg else "FedAsyncAggregator",
            "aggregator_kwargs": {"client_weights_mode": "sample_size", **optimize},
            "trainer": "VanillaTrainer",
            "trainer_kwargs": {
                "mode": "step",
                "num_local_steps": STEPS,
                "optim": "Adam",
                "optim_args": {"lr": RATE},
                "loss_fn": "CrossEntropyLoss",
                "metric_path": str(folder / "metric.py"),
                "metric_name": "accuracy",
                "train_batch_size": BATCH,
                **optimize,
            },
        },
        "server_configs": optimize,
        "log_configs": {"logging_output_dirname": str(folder)},
        "comm_configs": {"compressor_configs": {"enable_compression": False}},
    }


class CountingClient(SimClientAgent):  # type: ignore[misc]  # APPFL has no types here
    trained = 0

    def train(self, **options: Any) -> None:
        self.trained += 1
        super().train(**options)


def run(data: list[Part]) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as name:
        config = settings(Path(name))
        server = SimServerAgent(server_agent_config=config, num_clients=CLIENTS)
        clients = [
            CountingClient(
                client_agent_config=config, client_id=f"c{n}", client_dataset=TensorDataset(*part)
            )
            for n, part in enumerate(data)
        ]
        for client in clients:
            client.optimize_memory = OPTIMIZE  # its one-file form does not hand this one on
            server.set_sample_size(client.get_id(), client.get_sample_size())
        profiles = {client.get_id(): ClientProfile() for client in clients}
        logger = VsimLogger()
        if STRATEGY == "fedavg":
            driver: Any = SyncSimDriver(
                server, clients, profiles, CLIENTS, logger, target_rounds=ROUNDS
            )
        else:
            driver = AsyncSimDriver(server, clients, profiles, CLIENTS, logger)
        began = time.perf_counter()
        driver.run()
        seconds = time.perf_counter() - began
        done = driver.server.scheduler.get_num_global_epochs()
        assert done >= UPDATES, f"{done} of {UPDATES} global updates"
        return seconds, sum(client.trained for client in clients) * STEPS


if __name__ == "__main__":
    measure(run)
