import pytest


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: no machine crashes here."""
    monkeypatch.setattr("os.fsync", lambda _: None)
