"""Sites with privacy budgets that are killed: never more is spent than their accounts say."""

import json
from pathlib import Path
from random import Random

import pytest
from tests.faults.apps import APP
from tests.faults.federation_files import text_of
from tests.faults.loopback import Loopback
from tests.faults.tally import Row, tally

from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.privacy.account import PrivacyAccount, PrivacyPlan
from fedcompass.privacy.account_file import AccountFile
from fedcompass.privacy.spending import Spent, epsilon_of
from fedcompass.runs.journal import read_journal

STEPS = 8  # of a task
DELTA = 1e-3
BUDGET = {"epsilon": 8.0, "delta": DELTA, "noise": 1.0}  # for about 60 steps
COUNTED = (
    APP.replace(", nn.BatchNorm1d(16)", "")
    .replace("partial(torch.optim.SGD, lr=0.05)", "partial(Counting, site)")
    .replace(
        "def model()",
        '''class Counting(torch.optim.SGD):
    """Writes down every step that it really takes."""

    def __init__(self, site, parameters):
        super().__init__(parameters, lr=0.05)
        self.file = os.open(site.data / "taken", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def step(self, closure=None):
        os.write(self.file, b".")
        return super().step(closure)

    def __del__(self):
        os.close(self.file)


def model()''',
    )
    .replace("from functools", "import os\nfrom functools")
)


def private_federation(paces: dict[str, float]) -> Loopback:
    """A federation whose sites all have a budget, and count their steps beside their accounts."""
    federation = Loopback(paces, app=COUNTED, strategy={"name": "fedasync", "steps": STEPS})
    for name in paces:
        federation.site_settings[name]["privacy"] = BUDGET
        data(federation, name).mkdir()
        federation._write_site(name)
        settings = federation.site_folder(name) / "site.toml"
        settings.write_text('data = "data"\n' + settings.read_text())
    return federation


def data(federation: Loopback, site: str) -> Path:
    return federation.site_folder(site) / "data"


def taken(federation: Loopback, site: str) -> int:
    """Steps that a site has really taken."""
    return len(text_of(data(federation, site) / "taken"))


def recorded(federation: Loopback, site: str) -> list[Spent]:
    text = text_of(data(federation, site) / "privacy-account.json")
    return [Spent(*entry) for entry in json.loads(text)["spent"]] if text else []


def steps_of(history: list[Spent]) -> int:
    return sum(spent.steps for spent in history)


def has_left(federation: Loopback, site: str) -> bool:
    running = federation.sites[site]
    assert isinstance(running, RunningSite)
    return running.has_left


@pytest.mark.slow_faults  # test_killed_site_budget.py has it without a federation
@pytest.mark.parametrize("seed", [1, 2])
def test_sites_killed_until_their_budgets_are_spent(seed: int, row: Row) -> None:
    paces, random = {"a": 0.02, "b": 0.05}, Random(seed)
    kills = dict.fromkeys(paces, 0)
    with private_federation(paces) as federation:
        federation.start()
        federation.until_more("accepted")
        for _ in range(4):
            site, child = random.choice(["a", "b"]), random.choice(["worker", "site"])
            before = taken(federation, site) + random.randrange(2 * STEPS)
            federation.until(
                "it trains",
                lambda site=site, before=before: (  # type: ignore[misc]
                    taken(federation, site) > before or has_left(federation, site)
                ),
                tick=random.uniform(0.001, 0.05),
            )
            if federation.sites[site].children[child] is not None:
                federation.kill(child, site)
                kills[site] += 1
            done = taken(federation, site)
            assert done <= steps_of(recorded(federation, site))
        federation.until("all budgets are spent", lambda: federation.outcome is not None)
        assert federation.outcome is not None
        assert federation.outcome.error is None
        assert reason(federation) == "budgets spent"
        for site, killed in kills.items():
            federation.until("it leaves", lambda site=site: has_left(federation, site))  # type: ignore[misc]
            check_account(federation, site, killed)
        row.injected = federation.injected
        row.count(tally(federation.run))
        check_restart(federation, "a")


def reason(federation: Loopback) -> str:
    """Why the run ended."""
    told: str = json.loads(text_of(federation.run / "summary.json"))["reason"]
    return told


def check_account(federation: Loopback, site: str, killed: int, before: int = 0) -> None:
    """What the account says, what was done, and what the server was told."""
    history, done = recorded(federation, site), before + taken(federation, site)
    assert done <= steps_of(history) <= done + killed * STEPS
    spent = epsilon_of(history, DELTA)
    assert spent <= BUDGET["epsilon"]
    records = [record for _, record in read_journal(federation.run / "journal.jsonl")]
    arrived = [r for r in records if r.get("event") == "UpdateArrived" and r["client"] == site]
    assert sum(r["steps_done"] for r in arrived) <= done
    [left] = [r for r in records if r.get("event") == "ClientLost" and "privacy" in r][-1:]
    assert left["privacy"]["left"].startswith("budget spent: ")
    told = json.loads(text_of(federation.run / "summary.json"))["sites"][site]
    assert told["budget_spent"]
    if before == 0:  # else it came only to say that it leaves
        assert told["epsilon"] == pytest.approx(spent)


def check_restart(federation: Loopback, site: str) -> None:
    """A site that is started again says so once more, and takes no step."""
    before, log = taken(federation, site), federation.site_folder(site) / "state" / "site.log"
    lines = text_of(log).count("the site has left: budget spent: ")
    federation.sites[site].stop()
    federation.start_site(site)
    federation.until("it leaves again", lambda: has_left(federation, site))
    assert text_of(log).count("the site has left: budget spent: ") == lines + 1
    assert taken(federation, site) == before


def test_a_spent_site_that_was_killed_over_its_last_task_says_so_when_it_returns(row: Row) -> None:
    with private_federation({"poor": 0.3}) as federation:
        account = data(federation, "poor") / "privacy-account.json"
        plan = PrivacyPlan(**BUDGET, clip=1.0, sample_rate=0.2, batch_size=8.0)
        before = PrivacyAccount().affords(plan, 127) - STEPS
        AccountFile(account, plan).charge(before)
        federation.start()
        federation.until("it trains", lambda: taken(federation, "poor") > 0)
        federation.kill("site", "poor")
        federation.until("it leaves", lambda: has_left(federation, "poor"))
        why = "budget spent: "
        federation.until(
            "the server says why",
            lambda: why in str(federation.audit("left", "poor")[-1:]),
        )
        assert taken(federation, "poor") <= STEPS
        federation.until("all budgets are spent", lambda: federation.outcome is not None)
        assert reason(federation) == "budgets spent"
        check_account(federation, "poor", killed=1, before=before)
        row.injected = federation.injected
        check_restart(federation, "poor")


@pytest.mark.slow_faults
def test_an_account_that_is_set_back_and_then_deleted(row: Row) -> None:
    with private_federation({"a": 0.1, "b": 0.1}) as federation:
        account = data(federation, "a") / "privacy-account.json"
        copy = federation.site_folder("a") / "state" / account.name
        federation.start()
        federation.until_more("accepted", "a")
        old = account.read_bytes()
        federation.until_more("accepted", "a", lines=2)
        federation.sites["a"].stop()
        log = federation.site_folder("a") / "state" / "site.log"
        for damage in (lambda: account.write_bytes(old), account.unlink):
            damage()
            row.injected += 1
            before, refused = taken(federation, "a"), text_of(log).count("until you decide")
            federation.start_site("a")
            federation.until(
                "it does not train",
                lambda refused=refused: text_of(log).count("until you decide") > refused,  # type: ignore[misc]
            )
            federation.sites["a"].stop()
            assert taken(federation, "a") == before
        assert federation.audit("account set back") == []
        copy.unlink()  # somebody decides to begin at 0
        federation.start_site("a")
        federation.until_more("account set back", "a")
        row.accepted = federation.accepted()
