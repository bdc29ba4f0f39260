"""The hyperparameters of the paper's appendix, by dataset and number of clients."""

from typing import Any

from fedcompass.as_run import LATER_RELEASE
from fedcompass.own_code import is_own
from fedcompass.setting_tables import merged

__all__ = [
    "STRATEGY_KEYS",
    "USUAL_MODEL",
    "authors_settings",
    "paper_settings",
    "strategy_settings",
]

USUAL_MODEL = {
    "mnist": "mnist_cnn",
    "fashion-mnist": "mnist_cnn",
    "mnist-mini": "mlp",
    "cifar10": "resnet18",
    "fed-ixi": "unet3d",
    "fed-isic2019": "efficientnet_b0",
    "fed-heart-disease": "linear",
    "fed-tcga-brca": "linear",
    "msd-hippocampus": "unet3d",
}


STRATEGY_KEYS = {
    "fedavg": ("steps",),
    "fedavgm": ("steps", "server"),
    "fedasync": ("steps", "variant"),
    "fedbuff": ("steps", "buffer_size", "variant"),
    "fedat": ("steps", "tier_ratio"),
    "fedcompass": ("min_steps", "max_steps", "latest"),
    "fedcompass+m": ("min_steps", "max_steps", "latest", "server"),
    "fedcompass+n": ("min_steps", "max_steps", "latest"),
}
"""The paper's strategies, and which of `strategy_settings` each of them has."""


def _by_center(metric: str) -> dict[str, Any]:
    """Centers as clients, measured by a metric of their own.

    Cox's loss compares the samples of a batch, so over a test set it depends on the batches.
    """
    metrics = [metric] if metric == "concordance" else ["loss", metric]
    return {
        "partition": {"kind": "center"},
        "evaluation": {"metrics": metrics, "target_metric": metric},
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
    "fed-ixi": {
        "fleet": {"mean_seconds_per_step": 0.8},
        # FLamby leaves AdamW's decay at PyTorch's default
        "local": {
            "optimizer": "adamw",
            "learning_rate": 0.001,
            "weight_decay": 0.01,
            "batch_size": 2,
        },
        **_by_center("dice"),
        "target": 0.98,
        "horizon": 1600.0,
    },
    "fed-isic2019": {
        "fleet": {"mean_seconds_per_step": 1.5},
        "local": {"optimizer": "adam", "learning_rate": 0.0005, "batch_size": 64},
        **_by_center("balanced_accuracy"),
        "target": 0.5,
        "horizon": 3000.0,
    },
    # The paper has no runs on the two tables: FLamby's training, and targets and horizons of ours,
    # which FedAvg reaches on a homogeneous fleet within a third of the horizon.
    "fed-heart-disease": {
        "fleet": {"mean_seconds_per_step": 0.1},
        "local": {"optimizer": "adam", "learning_rate": 0.001, "batch_size": 4},
        **_by_center("binary_accuracy"),
        "target": 0.72,
        "horizon": 100.0,
    },
    "fed-tcga-brca": {
        "fleet": {"mean_seconds_per_step": 0.1},
        "local": {"optimizer": "adam", "learning_rate": 0.1, "batch_size": 8},
        **_by_center("concordance"),
        "target": 0.75,
        "horizon": 40.0,
    },
}
# The stand-in's target is ours too: the hippocampus is small and its border is hard to see.
_BY_DATASET["msd-hippocampus"] = {**_BY_DATASET["fed-ixi"], "target": 0.9}


_MEDICAL_STEPS = {
    "fed-ixi": 50,
    "fed-isic2019": 50,
    "msd-hippocampus": 50,
    "fed-heart-disease": 30,
    "fed-tcga-brca": 20,
}
"""Q. The paper's 50 for its two tasks (Q_min 20, Q_max 100: 0.4 Q and 2 Q). The two tables are far
smaller: there a local round is about one pass over an average center's samples."""


def paper_settings(dataset: str, clients: int) -> dict[str, Any]:
    """An experiment's settings for a dataset, as far as the paper gives them."""
    settings = _BY_DATASET.get(dataset, {})
    fleet = {"clients": clients, **settings.get("fleet", {})}
    model = "" if is_own(dataset) else USUAL_MODEL.get(dataset, "mlp")
    return {**settings, "model": model, "fleet": fleet}


def strategy_settings(dataset: str, clients: int, strategy: str = "") -> dict[str, Any]:
    """Every strategy's settings in the paper's experiments; take those a strategy has.

    The appendix gives values for 5, 10 and 20 clients: (200, 200, 100) steps and buffers of
    (3, 3, 5); in between, the next larger column is used. mnist-mini, a sixth of MNIST, uses a
    fifth of the steps, so that a client sees its data about as often in a local round; a user's own
    data, which nobody knows here, likewise. Metronome, which is not in the paper, has its own least
    steps: a tenth of the most.
    """
    many = clients > 10
    if dataset in _MEDICAL_STEPS:
        steps = _MEDICAL_STEPS[dataset]
        max_steps = steps * 2
        buffer_size = 3 if dataset in ("fed-isic2019", "fed-tcga-brca") else 2
    else:
        fraction = 5 if dataset == "mnist-mini" or is_own(dataset) else 1
        steps = max_steps = (100 if many else 200) // fraction
        buffer_size = 5 if many else 3
    settings: dict[str, Any] = {
        "steps": steps,
        "min_steps": max_steps // (10 if strategy.startswith("metronome") else 5),
        "max_steps": max_steps,
        "latest": 1.2,
        "buffer_size": buffer_size,
        "tier_ratio": 2.0,
        "variant": "share",
    }
    if dataset == "fed-isic2019" and strategy in ("fedavgm", "fedcompass+m"):
        settings["server"] = {"beta": 0.5}
    return settings


def authors_settings(max_steps: int) -> dict[str, Any]:
    """What the authors' own code does beyond the paper, as settings laid over the paper's.

    JoinGroup gives up to 1.2 Q_max steps, CreateGroup aims at T_max, a pace is smoothed, and a
    client's learning rate falls by 0.995 for every Q_max steps it was given. These are habits of
    their Compass scheduler: the other strategies have none of them.
    """
    return merged(LATER_RELEASE, {"local": {"rate_decay_steps": max_steps}})
