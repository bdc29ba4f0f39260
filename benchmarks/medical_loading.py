"""How many samples the loader gives while the network trains on one: it must not hold it up.

Generated images and volumes of Fed-ISIC2019's and Fed-IXI's shapes, memory-mapped as the real ones
are. "loader" is what happens to a batch before the network: rows read, normalized, augmented.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedcompass.data.dataset import Normalize
from fedcompass.data.medical.augmentation import IsicAugment
from fedcompass.data.medical.prepared import Preparation, RowKind, prepare
from fedcompass.models import build
from fedcompass.training import LocalSettings, Samples
from fedcompass.training.losses import FocalLoss, dice_loss
from fedcompass.training.optimizers import build_optimizer
from fedcompass.training.problem import Loss

ROUNDS = 3
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def mapped(folder: Path, rows: int, kind: RowKind) -> Tensor:
    """Noise of that shape, written and mapped like prepared samples."""
    noise = np.random.default_rng(0).integers(0, 256, kind.shape).astype(kind.dtype)
    preparation = Preparation(
        name="x".join(map(str, kind.shape)),
        rows=rows,
        arrays={"inputs": kind},
        make=lambda row: (np.roll(noise, row, axis=-1),),
    )
    return prepare(folder, preparation)["inputs"]


def seconds(action: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def loader(
    samples: Samples, batch: int, prepared: Callable[[Tensor], Tensor]
) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)

    def load() -> Tensor:
        rows = torch.randint(0, len(samples), (batch,), generator=generator)
        return prepared(samples.batch(rows)[0])

    return load


def step(network: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    optimizer = build_optimizer(LocalSettings(), network.train().parameters())

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return train


def measured(name: str, batch: int, load: Callable[[], Tensor], train: Callable[[], None]) -> str:
    """Both in turn, so that a busy machine slows both alike; the median of the rounds' ratios."""
    load()
    train()
    times = [(seconds(load, 5), seconds(train, 1)) for _ in range(ROUNDS)]
    loading, training = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(whole / part for part, whole in times)
    return (
        f"{name:34} loader {batch / loading:8.0f}/s   step {batch / training:7.1f}/s   "
        f"the loader gives {ratio:6.1f} times what the step takes"
    )


def images(folder: Path, edge: int, crop: int, batch: int) -> str:
    inputs = mapped(folder, 512, RowKind((3, edge, edge * 4 // 3), "uint8"))
    normalize, augment = Normalize(MEAN, STD), IsicAugment(crop, MEAN, STD)
    generator = torch.Generator().manual_seed(0)
    samples = Samples(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    load = loader(samples, batch, lambda pixels: augment(normalize(pixels), generator))
    network = build("efficientnet_b0", input_shape=(3, crop, crop), classes=8)
    targets = torch.zeros(batch, dtype=torch.int64)
    name = f"Fed-ISIC2019, crops of {crop}, batch {batch}"
    return measured(name, batch, load, step(network, FocalLoss(), load(), targets))


def volumes(folder: Path) -> str:
    inputs = mapped(folder, 64, RowKind((1, 48, 60, 48), "float32"))
    samples = Samples(inputs, torch.zeros(len(inputs), 48, 60, 48, dtype=torch.uint8))
    load = loader(samples, 2, lambda voxels: voxels)
    network = build("unet3d", input_shape=(1, 48, 60, 48), classes=2)
    return measured(
        "Fed-IXI, batch 2", 2, load, step(network, dice_loss, load(), samples.targets[:2])
    )


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for edge, crop in ((150, 134), (224, 200)):
            print(images(Path(folder), edge, crop, batch=16), flush=True)
        print(volumes(Path(folder)), flush=True)


if __name__ == "__main__":
    main()
