"""Who carries out a simulation's training and evaluation: one process, or several."""

from fedcompass.simulation.executors.parallel import ProcessesExecutor
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Executor,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.simulation.executors.serial import SerialExecutor

__all__ = [
    "EvalJob",
    "EvalResult",
    "Executor",
    "Job",
    "ProcessesExecutor",
    "SerialExecutor",
    "TrainJob",
    "TrainResult",
]
