"""How a client trains: optimizer, learning rate, batches, precision."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedcompass.settings import Settings

__all__ = ["LocalSettings"]


class LocalSettings(Settings):
    """How a client trains; the defaults are the paper's for MNIST (table of its appendix)."""

    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 0.003
    """Learning rate of the clients' optimizer."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Samples in a client's batch."""
    rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on the learning rate after every `rate_decay_steps` steps of a client; 1: none."""
    rate_decay_steps: Annotated[int, Field(ge=1)] = 200
    precision: Literal["float32", "bfloat16"] = "float32"
    """What the model's products are computed in; the weights and the optimizer stay float32."""

    @model_validator(mode="after")
    def _momentum_is_for_sgd(self) -> Self:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum is {self.momentum:g} but optimizer is {self.optimizer!r}; "
                "momentum belongs to 'sgd', leave it out"
            )
        return self

    def rate_scale(self, steps_before: int, steps: int) -> float:
        """What a task's learning rate is multiplied by, its own steps counted as done.

        That is how the paper's authors count: floor(all steps so far / Q_max) decays.
        """
        return float(self.rate_decay ** ((steps_before + steps) // self.rate_decay_steps))
