"""A site's account on its disk: a kill at any moment leaves at least what was spent."""

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from fedcompass.errors import BudgetSpent, RunFolderError
from fedcompass.privacy.account import PrivacyPlan
from fedcompass.privacy.account_file import AccountFile

PLAN = PrivacyPlan(epsilon=3.0, delta=1e-5, clip=1.0, noise=1.1, sample_rate=0.1, batch_size=8.0)


def steps_in(path: Path) -> int:
    return sum(steps for _, _, steps in json.loads(path.read_text())["spent"])


def test_what_is_charged_is_on_the_disk_and_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    assert AccountFile(path, PLAN).epsilon == 0.0
    assert not path.exists()
    assert AccountFile(path, PLAN).charge(7) == 7
    assert AccountFile(path, PLAN).charge(5) == 5
    assert steps_in(path) == 12
    assert 0 < AccountFile(path, PLAN).epsilon <= 3.0


def test_the_last_task_is_cut_and_then_the_budget_is_spent(tmp_path: Path) -> None:
    account = AccountFile(tmp_path / "account.json", PLAN)
    most = account.read().affords(PLAN, 1000)
    assert [account.charge(most - 2), account.charge(30)] == [most - 2, 2]
    with pytest.raises(BudgetSpent, match=r"budget spent: epsilon is \S+ of 3, and one more step"):
        account.charge(1)
    assert account.epsilon <= 3.0
    assert steps_in(account.path) == most


def test_steps_that_were_not_taken_are_given_back(tmp_path: Path) -> None:
    account = AccountFile(tmp_path / "account.json", PLAN)
    account.charge(10)
    account.settle(charged=10, done=4)
    assert steps_in(account.path) == 4
    account.settle(charged=4, done=0)
    assert account.epsilon == 0.0


def test_other_settings_later_go_on_with_the_same_account(tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    AccountFile(path, PLAN).charge(10)
    noisier = AccountFile(path, replace(PLAN, noise=2.0))
    before = noisier.epsilon
    noisier.charge(10)
    assert before < noisier.epsilon
    assert len(noisier.read().history) == 2
    AccountFile(path, PLAN).settle(charged=5, done=3)  # another kind came between: it stays charged
    assert steps_in(path) == 20


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, '{"format": 1}', '{"format": 2, "spent": []}']
)
def test_a_damaged_account_is_refused_when_the_site_starts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "account.json"
    path.write_text(text)
    with pytest.raises(RunFolderError, match=r"privacy account, cannot be read .* backup"):
        AccountFile(path, PLAN)


def test_no_flipped_bit_lowers_what_is_spent(tmp_path: Path) -> None:
    path, copy = tmp_path / "account.json", tmp_path / "copy.json"
    AccountFile(path, PLAN, copy).charge(7)
    whole = path.read_bytes()
    for place in range(8 * len(whole.rstrip())):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(RunFolderError):  # else it says the same in other letters
            assert AccountFile(path, PLAN, copy).read().history == [PLAN.spent(7)], bytes(damaged)


def test_an_account_that_is_gone_or_set_back_is_not_trained_on_until_somebody_decides(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "account.json", tmp_path / "copy.json"
    account = AccountFile(path, PLAN, copy)
    account.charge(3)
    old = path.read_bytes()
    account.charge(4)
    path.unlink()
    for call in (lambda: AccountFile(path, PLAN, copy), lambda: account.charge(1)):
        with pytest.raises(RunFolderError, match=r"it is not there, but its copy is.*you decide"):
            call()
    path.write_bytes(old)
    with pytest.raises(RunFolderError, match="it is older than its copy") as raised:
        AccountFile(path, PLAN, copy)
    assert f"put its copy, {copy}, in its place" in str(raised.value)
    shutil.copy(copy, path)  # as it says
    assert steps_in(path) == 7
    AccountFile(path, PLAN, copy).charge(1)
    path.unlink()
    copy.unlink()  # likewise
    assert AccountFile(path, PLAN, copy).epsilon == 0.0


@pytest.mark.parametrize("what", ["lost", "damaged", "behind"])
def test_a_copy_that_is_lost_damaged_or_behind_is_written_anew(tmp_path: Path, what: str) -> None:
    path, copy = tmp_path / "account.json", tmp_path / "copy.json"
    account = AccountFile(path, PLAN, copy)
    account.charge(3)
    if what == "lost":
        copy.unlink()
    elif what == "damaged":
        copy.write_text("{")
    else:  # killed in between, or another site of the same data has charged
        AccountFile(path, PLAN).charge(2)
    AccountFile(path, PLAN, copy).charge(4)
    assert copy.read_bytes() == path.read_bytes()
    assert steps_in(path) == (9 if what == "behind" else 7)


def test_where_the_account_cannot_be_written_nothing_may_be_trained(tmp_path: Path) -> None:
    account = AccountFile(tmp_path / "missing" / "account.json", PLAN)
    with pytest.raises(RunFolderError, match="No such file"):
        account.charge(1)


KILLED_WHILE_SPENDING = """
import os, signal, sys, time
from pathlib import Path
from fedcompass.privacy.account import PrivacyPlan
from fedcompass.privacy.account_file import AccountFile
from fedcompass.privacy.spending import epsilon_of

folder = Path(sys.argv[1])
plan = PrivacyPlan(epsilon=90.0, delta=1e-5, clip=1.0, noise=20.0, sample_rate=0.1, batch_size=8.0)
account = AccountFile(folder / "account.json", plan, folder / "copy.json")
for power in range(10):  # so that Opacus is loaded, and most is computed already
    epsilon_of([plan.spent(1 << power)], plan.delta)
(folder / "taken").touch()

def taken_so_far():
    return (folder / "taken").stat().st_size

def spend():
    with (folder / "taken").open("ab", buffering=0) as taken:
        while True:
            charged = account.charge(3)
            taken.write(b"xx")  # the steps that were really taken: the round was cut short
            account.settle(charged, 2)

for number in range(12):
    before, child = taken_so_far(), os.fork()
    if child == 0:
        spend()
    while taken_so_far() == before:
        time.sleep(0.001)
    time.sleep(0.005 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(taken_so_far(), sum(spent.steps for spent in account.read().history))
"""


def test_kill_9_at_any_moment_never_leaves_more_spent_than_recorded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SPENDING, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    counts = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(counts) == 12
    for kills, (taken, recorded) in enumerate(counts, start=1):
        assert taken <= recorded <= taken + 3 * kills  # one charge per kill is not settled
