import pytest
from tests.deployment.wire.loopback_wire import Papers


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates of a federation of two; tests that change the roster make their own."""
    return Papers(tmp_path_factory.mktemp("papers"), "north", "south")
