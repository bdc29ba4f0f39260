"""Local training of many clients at once, every tensor with a leading client axis."""

from fedcompass.training.stacked.tasks import StackedTask
from fedcompass.training.stacked.trainer import StackedTrainer

__all__ = ["StackedTask", "StackedTrainer"]
