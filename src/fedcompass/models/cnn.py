"""The paper's convolutional network for MNIST (appendix, table "MNIST CNN model architecture")."""

from collections import OrderedDict

from torch import nn

from fedcompass.errors import SettingsError

__all__ = ["mnist_cnn"]

_KERNEL, _POOL = 5, 2


def mnist_cnn(input_shape: tuple[int, ...] = (1, 28, 28), classes: int = 10) -> nn.Sequential:
    """Two 5x5 convolutions with pooling, two linear layers; 582,026 parameters for 28x28 grey.

    Raises:
        SettingsError: the input is not (channels, height, width) of at least 16 pixels a side.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise SettingsError(
            f"model 'mnist_cnn' cannot read inputs of shape {input_shape}; allowed: "
            "(channels, height, width) with at least 16 pixels a side"
        )
    channels, height, width = input_shape
    flat = 64 * _side(_side(height)) * _side(_side(width))
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 32, _KERNEL),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(_POOL),
            conv2=nn.Conv2d(32, 64, _KERNEL),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(_POOL),
            flatten=nn.Flatten(),
            fc1=nn.Linear(flat, 512),
            relu3=nn.ReLU(),
            fc2=nn.Linear(512, classes),
        )
    )


def _side(pixels: int) -> int:
    """What a convolution and a pooling leave of a side."""
    return (pixels - _KERNEL + 1) // _POOL
