"""Figures for papers, drawn from run folders with matplotlib; they need the `plot` extra.

Whatever draws or writes a picture raises `MissingExtra` where matplotlib is not installed, and
`SettingsError` for a path whose ending is no picture's.
"""
