"""Demos that end when their test says so, however slowly it looks on."""

from fedcompass.deployment.operator.demo import Demo

ENDLESS = 100_000  # updates, for a plan


def end_after(updates: int, demo: Demo) -> None:
    """Let the next server, which reads its settings anew, end the run after so many updates."""
    file = demo._home / "federation" / "deployment.toml"
    settings = file.read_text()
    assert str(ENDLESS) in settings
    file.write_text(settings.replace(str(ENDLESS), str(updates)))
