"""EfficientNet-B0 as FLamby's Fed-ISIC2019 task uses it, from the package efficientnet-pytorch."""

from torch import nn

from fedcompass.errors import MissingExtra, SettingsError

__all__ = ["efficientnet_b0"]


def efficientnet_b0(input_shape: tuple[int, ...] = (3, 200, 200), classes: int = 8) -> nn.Module:
    """The network with random weights; 4,017,796 parameters for 8 classes.

    Raises:
        MissingExtra: efficientnet-pytorch is not installed.
        SettingsError: the input is not (channels, height, width) of at least 32 pixels a side.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 32:
        raise SettingsError(
            f"model 'efficientnet_b0' cannot read inputs of shape {input_shape}; allowed: "
            "(channels, height, width) with at least 32 pixels a side"
        )
    try:
        from efficientnet_pytorch import EfficientNet
    except ImportError:
        raise MissingExtra("efficientnet-pytorch", "medical", "model 'efficientnet_b0'") from None
    network: nn.Module = EfficientNet.from_name(
        "efficientnet-b0", in_channels=input_shape[0], num_classes=classes
    )
    return network
