"""What a client has spent of its privacy budget, and the secret randomness that buys it."""
