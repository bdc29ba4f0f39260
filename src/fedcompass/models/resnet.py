"""The paper's ResNet-18 for CIFAR-10 (appendix, table "CIFAR-10 ResNet18 model architecture")."""

from collections import OrderedDict

from torch import Tensor, nn

from fedcompass.errors import SettingsError

__all__ = ["ResidualBlock", "resnet18"]

_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # planes and first stride; two blocks each


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, added to the input.

    Where planes or stride differ the input goes through a 1x1 convolution with batch norm first.
    """

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                OrderedDict(
                    conv=nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False),
                    bn=nn.BatchNorm2d(planes),
                )
            )
        self.relu2 = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the block to a batch of feature maps."""
        hidden = self.relu1(self.bn1(self.conv1(inputs)))
        added: Tensor = self.relu2(self.bn2(self.conv2(hidden)) + self.shortcut(inputs))
        return added


def resnet18(input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10) -> nn.Sequential:
    """Eight residual blocks on a 3x3 stem; 11,173,962 parameters for 32x32 colour and 10 classes.

    Raises:
        SettingsError: the input is not (channels, height, width).
    """
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise SettingsError(
            f"model 'resnet18' cannot read inputs of shape {input_shape}; "
            "allowed: (channels, height, width)"
        )
    channels, height, width = input_shape
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 64, 3, padding=1, bias=False),
        bn1=nn.BatchNorm2d(64),
        relu1=nn.ReLU(),
    )
    in_planes = 64
    for stage, (planes, stride) in enumerate(_STAGES, start=1):
        layers[f"block{stage}_1"] = ResidualBlock(in_planes, planes, stride)
        layers[f"block{stage}_2"] = ResidualBlock(planes, planes, 1)
        in_planes = planes
    # The last map is an eighth of the input, rounded up: 4x4 for CIFAR, as in the table.
    layers["pool"] = nn.AvgPool2d((-(-height // 8), -(-width // 8)))
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(512, classes)
    return nn.Sequential(layers)
