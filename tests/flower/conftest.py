"""What the tests of the Flower part share."""

from tests.flower.fake_grid import in_a_run

__all__ = ["in_a_run"]
