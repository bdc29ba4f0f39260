"""Where to train: a GPU if there is one and nobody says otherwise."""

import torch

from fedcompass.errors import SettingsError

__all__ = ["check_device", "chosen_device", "device_name"]


def chosen_device(asked: str) -> str:
    """What torch calls a device: "gpu" is "cuda"; "auto" is "cuda" if it is there, else "cpu"."""
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, colon, number = asked.partition(":")
    return f"cuda{colon}{number}" if kind == "gpu" else asked


def check_device(device: str, remedy: str = "") -> None:
    """Refuse a device that nothing can be trained on here.

    Raises:
        SettingsError: naming it, why, and what to do if somebody says it: the remedy.
    """
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        told = f"device is {device!r}, which cannot be used: {reason}"
        raise SettingsError(f"{told}; {remedy}" if remedy else told) from None


def device_name(device: str, how: str = "") -> str:
    """A device in words, for the record: cpu, or cuda and which."""
    name = device
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        name = f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{name}, {how}" if how else name
