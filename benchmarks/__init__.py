"""Measured claims: each module prints ratios taken in one run. Run with `make bench`."""
