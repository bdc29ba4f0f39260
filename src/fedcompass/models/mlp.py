"""Networks of linear layers, for features and images of any shape: none hidden, or one."""

from collections import OrderedDict
from math import prod

from torch import nn

__all__ = ["linear", "mlp"]

_HIDDEN = 64


def linear(input_shape: tuple[int, ...] = (13,), classes: int = 2) -> nn.Sequential:
    """One score per sample for up to two classes, otherwise one per class; no softmax, no sigmoid.

    Logistic regression, Cox's model or softmax regression, as the loss says;
    14 parameters for Fed-Heart-Disease, 40 for Fed-TCGA-BRCA.
    """
    outputs = 1 if classes <= 2 else classes
    return nn.Sequential(
        OrderedDict(flatten=nn.Flatten(), fc=nn.Linear(prod(input_shape), outputs))
    )


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
