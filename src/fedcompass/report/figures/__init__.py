"""Figures for papers, drawn from run folders with matplotlib; they need the `plot` extra."""
