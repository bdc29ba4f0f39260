"""What a client does when it is told to train, and how a model is measured."""

from fedcompass.settings.training import METRICS, LocalSettings, check_metrics
from fedcompass.training.evaluation import evaluate, evaluate_clients
from fedcompass.training.local import LocalTrainer
from fedcompass.training.metrics import metric, register_metric
from fedcompass.training.problem import Problem, Samples

__all__ = [
    "METRICS",
    "LocalSettings",
    "LocalTrainer",
    "Problem",
    "Samples",
    "check_metrics",
    "evaluate",
    "evaluate_clients",
    "metric",
    "register_metric",
]
