"""A run's metrics in TensorBoard or MLflow, while it runs or afterwards."""

from fedcompass.report.tracking.followed_run import (
    FollowedRun,
    OpenTracker,
    Status,
    Tracker,
    track,
)

__all__ = ["FollowedRun", "OpenTracker", "Status", "Tracker", "track"]
