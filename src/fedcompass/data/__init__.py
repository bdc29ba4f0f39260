"""Datasets and partitions.

`catalogue.load(name)` gives a checked `dataset.Dataset`; `fetch.fetch(name)` downloads one;
`partition.partition(...)` splits its training samples among clients. `sources`, `places` and
`fetch` load no torch, so that the command line stays quick; that is why this package re-exports
nothing.
"""
