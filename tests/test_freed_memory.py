"""What a process of a federation has freed is used again without asking the kernel for it."""

import subprocess
import sys

_COUNT = """
import resource, sys

from fedcompass.freed_memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model = b"x" * 40_000_000
    del model
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def _page_faults_of_a_second_model(how: str) -> int:
    command = [sys.executable, "-c", _COUNT, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_second_model_in_memory_costs_hardly_any_page_faults() -> None:
    assert _page_faults_of_a_second_model("leave") > 5_000
    assert _page_faults_of_a_second_model("keep") < 500
