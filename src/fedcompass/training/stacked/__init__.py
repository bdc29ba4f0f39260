"""Local training of many clients at once, every tensor with a leading client axis."""

from fedcompass.training.stacked.stacked_trainer import StackedTrainer
from fedcompass.training.stacked.tasks import StackedTask

__all__ = ["StackedTask", "StackedTrainer"]
