"""A run's metrics in TensorBoard, MLflow or Weights & Biases, while it runs or afterwards."""

from fedcompass.report.tracking.followed_run import (
    FollowedRun,
    OpenTracker,
    Status,
    Tracker,
    track,
)

__all__ = ["FollowedRun", "OpenTracker", "Status", "Tracker", "track"]
