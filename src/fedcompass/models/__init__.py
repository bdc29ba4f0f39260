"""The networks: the paper's, a small one, and the way to name your own."""

from fedcompass.models.networks import NAMES, build, build_seeded

__all__ = ["NAMES", "build", "build_seeded"]
