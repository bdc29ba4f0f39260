"""Federated learning for clients of unequal speed.

>>> import fedcompass
>>> result = fedcompass.simulate(fedcompass.Experiment(seed=1))    # doctest: +SKIP
>>> result.time_to(0.8)                                            # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment
    from fedcompass.simulation.result import Result
    from fedcompass.simulation.run import simulate
    from fedcompass.strategies import strategy
    from fedcompass.training.problem import Problem, Samples

__all__ = ["Experiment", "Problem", "Result", "Samples", "__version__", "simulate", "strategy"]

__version__ = "0.1.0"

_HOME = {
    "Experiment": "fedcompass.experiment",
    "Problem": "fedcompass.training.problem",
    "Result": "fedcompass.simulation.result",
    "Samples": "fedcompass.training.problem",
    "simulate": "fedcompass.simulation.run",
    "strategy": "fedcompass.strategies",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's --help loads no torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedcompass' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
