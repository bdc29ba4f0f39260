"""A run's metrics in TensorBoard or MLflow, while it runs or afterwards."""

from fedcompass.report.tracking.following import FollowedRun, track
from fedcompass.report.tracking.tracker import OpenTracker, Status, Tracker

__all__ = ["FollowedRun", "OpenTracker", "Status", "Tracker", "track"]
