"""The work in Flower's simulation, one client at a time; it has no asynchronous strategy."""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.workload import CLIENTS, ROUNDS, STEPS, MnistCnn, Part, measure, parts, train

client = ClientApp()
server = ServerApp()
DATA: list[Part] = []
ENDS: list[float] = []
PATH = Path(sys.argv[1])


@client.train()
def local_round(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    if not DATA:
        DATA.extend(parts(PATH))
    module = MnistCnn()
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    part = DATA[int(context.node_config["partition-id"])]
    train(module, part, STEPS)
    content = RecordDict()
    content["arrays"] = ArrayRecord(module.state_dict())
    content["metrics"] = MetricRecord({"num-examples": len(part[1])})
    return Message(content=content, reply_to=message)


class TimedFedAvg(FedAvg):
    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        merged = super().aggregate_train(server_round, replies)
        ENDS.append(time.perf_counter())
        return merged


@server.main()
def main(grid: Grid, _: Context) -> None:
    strategy = TimedFedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    arrays = ArrayRecord(MnistCnn().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=ROUNDS + 1)


def run(_: list[Part]) -> tuple[float, int]:
    """Seconds from the end of a first round, which starts the workers, to the end of the last."""
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    backend: Any = {"client_resources": resources, "init_args": {"num_cpus": 1}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=backend)
    assert len(ENDS) == ROUNDS + 1
    return ENDS[-1] - ENDS[0], ROUNDS * CLIENTS * STEPS


if __name__ == "__main__":
    measure(run)
