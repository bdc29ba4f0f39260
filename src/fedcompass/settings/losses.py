"""Which losses there are by name; `training.losses` computes them."""

from fedcompass.errors import SettingsError
from fedcompass.settings import unknown_key

__all__ = ["LOSS_NAMES", "check_loss"]

LOSS_NAMES = ("cross_entropy", "logistic", "focal", "dice", "cox")
"""Every loss's name."""


def check_loss(name: str) -> None:
    """Refuse a name that no loss has.

    Raises:
        SettingsError: naming it, the known ones and the nearest.
    """
    if name not in LOSS_NAMES:
        raise SettingsError(unknown_key(name, LOSS_NAMES, "losses"))
