"""The server's part: the event loop on the wall clock, and what it leaves in the run folder."""
