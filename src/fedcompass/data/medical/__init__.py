"""Naturally split medical data: the FLamby tasks, and a stand-in for the one that is hard to get.

`loading.load(name)` gives a `Dataset` whose centers are the clients; `published` says what is known
about each, and loads no torch. Images and volumes are prepared once, by `prepared`, and then
memory-mapped.
"""
