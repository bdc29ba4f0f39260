"""Opacus is loaded where training is private; where it is missing, one line says what to do."""

import subprocess
import sys

from fedcompass.experiment import Experiment

PLAIN = """
import sys
import fedcompass.cli.run, fedcompass.simulation.run, fedcompass.deployment.site.local_round
fedcompass.simulate(fedcompass.Experiment(horizon=0.05), executor="none")
print([name for name in ("opacus", "scipy", "cryptography") if name in sys.modules])
"""

MISSING = """
import sys
sys.modules["opacus"] = None
import fedcompass
from fedcompass.errors import FedcompassError
try:
    fedcompass.simulate(fedcompass.Experiment(privacy={"epsilon": 8.0}, horizon=0.05))
except FedcompassError as error:
    print(error)
"""


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_run_that_is_not_private_loads_nothing_of_it() -> None:
    assert printed(PLAIN) == "[]"


def test_without_opacus_a_private_run_says_what_to_install() -> None:
    assert printed(MISSING) == (
        "a privacy budget needs opacus, which is not installed. "
        "Run in its checkout: pip install -c constraints.txt '.[privacy]'"
    )


def test_an_experiment_without_a_budget_is_recorded_as_it_was_before_there_were_any() -> None:
    assert "privacy" not in Experiment().to_record()
    private = Experiment(privacy={"epsilon": 8.0})
    assert private.to_record()["privacy"]["epsilon"] == 8.0
    assert Experiment(**private.to_record()) == private
    assert private.key() != Experiment().key()
