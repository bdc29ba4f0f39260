"""Datasets and partitions."""
