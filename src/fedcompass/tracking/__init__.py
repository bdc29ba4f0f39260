"""A run's metrics in TensorBoard or MLflow, while it runs or afterwards."""

from fedcompass.tracking.following import FollowedRun, track
from fedcompass.tracking.tracker import OpenTracker, Status, Tracker

__all__ = ["FollowedRun", "OpenTracker", "Status", "Tracker", "track"]
