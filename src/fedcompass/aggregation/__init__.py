"""How updates become a model: pure tensor arithmetic."""
