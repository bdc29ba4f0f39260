"""Many experiments, each run once: a grid in a file, a store of results, and tables of them."""
