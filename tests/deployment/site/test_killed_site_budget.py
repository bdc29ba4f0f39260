"""A site with a privacy budget, killed while it trains; what it learns does not matter here."""

import subprocess
import sys
from pathlib import Path

KILLED_WHILE_TRAINING = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
import torch
from torch import nn
from fedcompass import Samples
from fedcompass.aggregation.layout import Layout
from fedcompass.deployment import Site, Trainer
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.privacy.spending import epsilon_of
torch.set_num_threads(1)

folder = Path(sys.argv[1])
taken = (folder / "taken").open("ab", buffering=0)
begun = False

def count(inputs):
    if begun:
        taken.write(b"x")
    return inputs

data = Samples(torch.randn(20, 2), torch.zeros(20, dtype=torch.int64))
trainer = Trainer(
    data=data, optimizer=partial(torch.optim.SGD, lr=0.1), batch_size=20, transform=count
)
budget = {"epsilon": 400.0, "noise": 20.0}  # ε is computed faster than of little noise
rounds = SiteRounds(nn.Linear(2, 2), trainer, Site("here", folder, settings={"privacy": budget}))
start, account = Layout.of(nn.Linear(2, 2)).state_of(nn.Linear(2, 2)), rounds.budget.account
for power in range(9):  # so that most is computed already
    epsilon_of([account.plan.spent(1 << power)], account.plan.delta)
begun = True
rounds.run(start, steps=4, task=0)  # what is loaded with the first step, each child would load
for number in range(8):
    before, child = (folder / "taken").stat().st_size, os.fork()
    if child == 0:
        for task in range(1000):
            rounds.run(start, steps=4, task=task, should_stop=lambda: task % 3 == 2)
    while (folder / "taken").stat().st_size == before:
        time.sleep(0.001)
    time.sleep(0.003 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    recorded = sum(spent.steps for spent in account.read().history)
    print((folder / "taken").stat().st_size, recorded)
"""


def test_kill_9_in_the_midst_of_training_never_leaves_more_spent_than_recorded(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_TRAINING, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    counts = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(counts) == 8
    for kills, (taken, recorded) in enumerate(counts, start=1):
        assert taken <= recorded <= taken + 4 * kills  # at most one task per kill stays charged
