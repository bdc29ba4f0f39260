"""Datasets and partitions.

`catalogue.load(name)` gives a checked `dataset.Dataset`; `fetch.fetch(name)` downloads one;
`partition.partition(...)` deals its training samples out to clients. `sources`, `places`, `fetch`
and `partition_settings` load no torch, so that the command line stays quick; that is why this
package re-exports nothing.
"""
