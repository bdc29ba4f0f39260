"""One linear layer: logistic regression, Cox's model or softmax regression, as the loss says."""

from collections import OrderedDict
from math import prod

from torch import nn

__all__ = ["linear"]


def linear(input_shape: tuple[int, ...] = (13,), classes: int = 2) -> nn.Sequential:
    """One score per sample for up to two classes, otherwise one per class; no softmax, no sigmoid.

    14 parameters for Fed-Heart-Disease, 40 for Fed-TCGA-BRCA.
    """
    outputs = 1 if classes <= 2 else classes
    return nn.Sequential(
        OrderedDict(flatten=nn.Flatten(), fc=nn.Linear(prod(input_shape), outputs))
    )
