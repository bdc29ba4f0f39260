"""What is left of a run: its files, and what they say."""
