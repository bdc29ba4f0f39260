"""A small network with batch norm, for a study of its statistics that a CPU can run."""

from torch import nn

__all__ = ["batch_norm_cnn"]

_CONVOLUTIONS = ((8, 2), (16, 2), (16, 1), (32, 2), (32, 1))  # channels and stride


def batch_norm_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convolutions of 3 by 3 without bias, each with batch norm and ReLU; a mean pool; linear."""
    layers: list[nn.Module] = []
    ins = input_shape[0]
    for outs, stride in _CONVOLUTIONS:
        layers += [
            nn.Conv2d(ins, outs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outs),
            nn.ReLU(),
        ]
        ins = outs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(ins, classes))
