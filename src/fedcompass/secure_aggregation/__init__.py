"""A server that sees only sums: masks that cancel, and shares to open them when members vanish."""
