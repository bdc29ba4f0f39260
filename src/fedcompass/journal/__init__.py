"""Every event and command of a run, as JSON lines; replay."""
