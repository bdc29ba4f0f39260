"""What keeps a Flower process to itself."""

from pathlib import Path

__all__ = ["flower_environment"]


def flower_environment(home: Path) -> dict[str, str]:
    """Environment variables of a Flower process: no telemetry, no update check, its own folder."""
    return {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
