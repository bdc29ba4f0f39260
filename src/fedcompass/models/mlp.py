"""A small multilayer perceptron, for quick runs and features of any shape."""

from collections import OrderedDict
from math import prod

from torch import nn

__all__ = ["mlp"]

_HIDDEN = 64


def mlp(input_shape: tuple[int, ...] = (1, 28, 28), classes: int = 10) -> nn.Sequential:
    """One hidden layer of 64 units; 50,890 parameters for MNIST."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            fc1=nn.Linear(prod(input_shape), _HIDDEN),
            relu1=nn.ReLU(),
            fc2=nn.Linear(_HIDDEN, classes),
        )
    )
