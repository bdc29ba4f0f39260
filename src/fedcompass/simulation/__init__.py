"""Driver 1: virtual time."""
