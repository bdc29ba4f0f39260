"""The hyperparameters of the paper's appendix, by dataset and number of clients."""

from typing import Any

__all__ = ["USUAL_MODEL", "paper_settings", "strategy_settings"]

USUAL_MODEL = {
    "mnist": "mnist_cnn",
    "fashion-mnist": "mnist_cnn",
    "mnist-mini": "mlp",
    "cifar10": "resnet18",
}

_MNIST: dict[str, Any] = {
    "fleet": {"mean_seconds_per_step": 0.15},
    "local": {"optimizer": "adam", "learning_rate": 0.003, "batch_size": 64},
    "target": 0.9,
}

_BY_DATASET: dict[str, dict[str, Any]] = {
    "mnist": {**_MNIST, "horizon": 600.0},
    "fashion-mnist": {**_MNIST, "horizon": 600.0, "target": 0.75},
    "mnist-mini": {**_MNIST, "horizon": 80.0, "target": 0.8},
    "cifar10": {
        "fleet": {"mean_seconds_per_step": 0.5},
        "local": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 128},
        "target": 0.5,
        "horizon": 4000.0,
    },
}


def paper_settings(dataset: str, clients: int) -> dict[str, Any]:
    """An experiment's settings for a dataset, as far as the paper gives them."""
    settings = _BY_DATASET.get(dataset, {})
    fleet = {"clients": clients, **settings.get("fleet", {})}
    return {**settings, "model": USUAL_MODEL.get(dataset, "mlp"), "fleet": fleet}


def strategy_settings(dataset: str, clients: int) -> dict[str, Any]:
    """Every strategy's settings in the paper's experiments; take those a strategy has.

    The appendix gives values for 5, 10 and 20 clients: (200, 200, 100) steps and buffers of
    (3, 3, 5); in between, the next larger column is used. mnist-mini, a sixth of MNIST, uses a
    fifth of the steps, so that a client sees its data about as often in a local round.
    """
    many = clients > 10
    steps = 100 if many else 200
    if dataset == "mnist-mini":
        steps //= 5
    return {
        "steps": steps,
        "min_steps": steps // 5,
        "max_steps": steps,
        "latest": 1.2,
        "buffer_size": 5 if many else 3,
        "tier_ratio": 2.0,
        "variant": "share",
    }
