"""Federated learning for clients of unequal speed."""

__version__ = "0.1.0"
