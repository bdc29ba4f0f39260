"""An ordinary Flower ClientApp, without fedcompass at the site: it joins by honouring `steps`."""

import time

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

torch.manual_seed(0)
x = torch.randn(500, 2)
y = (x.sum(dim=1) > 0).long()


def local_round(model: nn.Module, steps: int) -> Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        rows = torch.randint(len(x), (32,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return loss.detach()


app = ClientApp()


@app.train()
def train(message: Message, _: Context) -> Message:
    model = nn.Linear(2, 2)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    steps = message.content.config_records["config"]["steps"]  # the one key to honour
    assert isinstance(steps, int)
    began = time.perf_counter()
    local_round(model, steps)
    seconds = time.perf_counter() - began  # of computing: the pace comes from it
    metrics = MetricRecord({"steps_done": steps, "seconds": seconds, "num-examples": len(x)})
    arrays = ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


if __name__ == "__main__":  # a SuperNode imports `app`; run by hand, try the training itself
    network = nn.Linear(2, 2)
    print(f"loss below 0.2 after 100 steps: {local_round(network, 100).item() < 0.2}")
