"""Flower as the engine: all that knows its names; to be replaced, it is deleted as a whole."""
