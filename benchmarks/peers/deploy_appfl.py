"""APPFL's gRPC over TLS: its server and one client, in processes of their own, only move models.

`deploy_appfl.py BYTES ROUNDS FOLDER ADDRESS`, run by the Python that APPFL is installed for, prints
the seconds of each update: the end model up, FedAvg, the new model down. `optimize_memory` is off:
that is the faster way.
"""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

if importlib.util.find_spec("piq") is None:
    # APPFL imports it for image-quality reports; it needs torchvision and is not used here.
    sys.modules["piq"] = ModuleType("piq")

from appfl.agent import ServerAgent
from appfl.comm.grpc import GRPCClientCommunicator, GRPCServerCommunicator, serve
from omegaconf import OmegaConf

_TENSORS = 20
_CLIENT = "site"
_MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, part, tensors):
        super().__init__()
        self.parts = nn.ParameterList(torch.randn(part) for _ in range(tensors))
"""


def settings(folder: Path, model_bytes: int, rounds: int) -> Any:
    """The server's settings, in APPFL's form."""
    (folder / "model.py").write_text(_MODEL, encoding="utf-8")
    plain = {"optimize_memory": False}
    return OmegaConf.create(
        {
            "client_configs": {
                "model_configs": {
                    "model_path": str(folder / "model.py"),
                    "model_name": "Model",
                    "model_kwargs": {"part": model_bytes // 4 // _TENSORS, "tensors": _TENSORS},
                },
                "comm_configs": {"compressor_configs": {"enable_compression": False}},
            },
            "server_configs": {
                "num_clients": 1,
                "num_global_epochs": rounds,
                "scheduler": "SyncScheduler",
                "scheduler_kwargs": {"num_clients": 1, **plain},
                "aggregator": "FedAvgAggregator",
                "aggregator_kwargs": {"client_weights_mode": "equal", **plain},
                "logging_output_dirname": str(folder / "log"),
                "comm_configs": {"grpc_configs": plain},
                **plain,
            },
        }
    )


def run_server(folder: Path, address: str, model_bytes: int, rounds: int) -> None:
    agent = ServerAgent(server_agent_config=settings(folder, model_bytes, rounds))
    communicator = GRPCServerCommunicator(agent, logger=agent.logger, optimize_memory=False)
    serve(
        communicator,
        server_uri=address,
        use_ssl=True,
        server_certificate_key=str(folder / "server.key"),
        server_certificate=str(folder / "server.crt"),
        ca_certificate=str(folder / "ca.crt"),
    )


def run_client(folder: Path, address: str, rounds: int) -> list[float]:
    client = GRPCClientCommunicator(
        _CLIENT,
        server_uri=address,
        use_ssl=True,
        root_certificate=str(folder / "ca.crt"),
        optimize_memory=False,
    )
    client.get_configuration()
    model = client.get_global_model(init_model=True)
    model = model[0] if isinstance(model, tuple) else model
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        model, _facts = client.update_global_model(model)
        took.append(time.perf_counter() - began)
    return took[1:]


def main() -> None:
    model_bytes, rounds, folder, address = sys.argv[1:5]
    if sys.argv[5:] == ["server"]:
        run_server(Path(folder), address, int(model_bytes), int(rounds) + 1)
        return
    server = subprocess.Popen([sys.executable, __file__, *sys.argv[1:5], "server"], stdout=2)
    try:
        print(json.dumps(run_client(Path(folder), address, int(rounds) + 1)))
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
