"""A site with a privacy budget: charged before it trains, cut to what is left, then it leaves."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.deployment.site_apps import SGD, CountingTrainer, linear, samples, start_state
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.errors import BudgetSpent, DataError, RunFolderError, SettingsError

BUDGET = {"epsilon": 5.0, "noise": 2.0, "clip": 0.5, "delta": 1e-4}


def site(folder: Path, **changes: Any) -> Site:
    return Site("here", folder, settings={"privacy": {**BUDGET, **changes}})


def rounds(folder: Path, trainer: Trainer | None = None, **changes: Any) -> SiteRounds:
    trainer = trainer or Trainer(data=samples(), optimizer=SGD, batch_size=4)
    return SiteRounds(linear(), trainer, site(folder, **changes))


def recorded(folder: Path) -> int:
    text = (folder / "privacy-account.json").read_text()
    return sum(steps for _, _, steps in json.loads(text)["spent"])


def test_a_round_is_charged_by_its_steps_and_tells_no_loss(tmp_path: Path) -> None:
    done = rounds(tmp_path).run(start_state()[1], steps=5, task=1)
    assert (done.steps_done, done.loss) == (5, 0.0)
    assert recorded(tmp_path) == 5
    assert torch.isfinite(done.end.trainable).all()


def test_the_steps_are_on_the_disk_before_the_first_is_taken(tmp_path: Path) -> None:
    seen = []

    def look(inputs: Tensor) -> Tensor:
        if (tmp_path / "privacy-account.json").exists():  # not while the loss is tried
            seen.append(recorded(tmp_path))
        return inputs

    trainer = Trainer(data=samples(), optimizer=SGD, batch_size=20, transform=look)
    rounds(tmp_path, trainer).run(start_state()[1], steps=3, task=1)
    assert seen == [3, 3, 3]


def test_a_task_that_is_asked_for_again_is_charged_again_and_has_other_noise(
    tmp_path: Path,
) -> None:
    private = rounds(tmp_path)
    first, again = (
        private.run(start_state()[1], steps=3, task=1).end.trainable.clone() for _ in range(2)
    )
    assert not torch.equal(first, again)
    assert recorded(tmp_path) == 6


def test_a_task_that_was_stopped_early_costs_what_was_done(tmp_path: Path) -> None:
    done = rounds(tmp_path).run(start_state()[1], steps=9, task=1, should_stop=lambda: True)
    assert done.steps_done == recorded(tmp_path) == 1


def test_a_task_that_failed_stays_charged(tmp_path: Path) -> None:
    calls = []

    def fail(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 22:
            raise ValueError("no")
        return nn.functional.cross_entropy(outputs, targets)

    trainer = Trainer(data=samples(), optimizer=SGD, batch_size=20, loss=fail)
    with pytest.raises(ValueError, match="no"):
        rounds(tmp_path, trainer).run(start_state()[1], steps=4, task=1)
    assert recorded(tmp_path) == 4


def test_the_last_task_is_cut_then_the_site_says_that_its_budget_is_spent(tmp_path: Path) -> None:
    private, done = rounds(tmp_path), list[int]()
    while not done or done[-1] == 40:
        done.append(private.run(start_state()[1], steps=40, task=len(done)).steps_done)
    assert 1 <= done[-1] < 40
    with pytest.raises(
        BudgetSpent, match=r"budget spent: epsilon is [\d.]+ of 5, and one more step"
    ):
        private.run(start_state()[1], steps=1, task=99)
    with pytest.raises(BudgetSpent):  # a restart forgets nothing
        rounds(tmp_path).run(start_state()[1], steps=1, task=99)
    assert recorded(tmp_path) == sum(done)


def test_an_account_is_kept_in_the_sites_own_folder_too_and_a_lost_one_ends_the_training(
    tmp_path: Path,
) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    state.mkdir()
    trainer = Trainer(data=samples(), optimizer=SGD, batch_size=4)
    here = replace(site(data), state=state)
    private = SiteRounds(linear(), trainer, here)
    private.run(start_state()[1], steps=5, task=1)
    assert recorded(state) == recorded(data) == 5
    (data / "privacy-account.json").unlink()
    with pytest.raises(RunFolderError, match="the site does not train until you decide"):
        private.run(start_state()[1], steps=5, task=2)
    with pytest.raises(RunFolderError, match="the site does not train until you decide"):
        SiteRounds(linear(), trainer, here)


def test_a_site_without_a_budget_keeps_no_account(tmp_path: Path) -> None:
    plain = SiteRounds(linear(), CountingTrainer(), Site("here", tmp_path))
    assert plain.run(start_state()[1], steps=3, task=1).loss > 0
    assert list(tmp_path.iterdir()) == []


def test_a_map_style_dataset_is_drawn_from_too(tmp_path: Path) -> None:
    given = samples()
    data = TensorDataset(given.tensor, given.targets)
    trainer = Trainer(data=data, optimizer=SGD, batch_size=1)  # some batches are empty
    assert rounds(tmp_path, trainer).run(start_state()[1], steps=12, task=1).steps_done == 12


def wrong(what: str, folder: Path) -> SiteRounds:
    match what:
        case "its own train_step":
            return rounds(folder, CountingTrainer())
        case "a loader":
            given = samples()
            loader = DataLoader(TensorDataset(given.tensor, given.targets), 4)
            return rounds(folder, Trainer(data=loader, optimizer=SGD))
        case "batch norm":
            trainer = Trainer(data=samples(), optimizer=SGD)
            module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
            return SiteRounds(module, trainer, site(folder))
        case "nowhere to keep it":
            settings: Mapping[str, Any] = {"privacy": BUDGET}
            trainer = Trainer(data=samples(), optimizer=SGD)
            return SiteRounds(linear(), trainer, Site("here", settings=settings))
        case "a list":
            return rounds(folder, epsilon=[1.0, 2.0])
        case "its own sampling":
            return rounds(folder, Trainer(data=samples(), optimizer=SGD, sampling="rounds"))
        case "no epsilon":
            return SiteRounds(
                linear(),
                Trainer(data=samples(), optimizer=SGD),
                Site("here", folder, settings={"privacy": {"clip": 1.0}}),
            )
        case _:
            (folder / "privacy-account.json").write_text("?")
            return rounds(folder)


WRONG: dict[str, tuple[type[Exception], str]] = {
    "its own train_step": (SettingsError, "has a train_step of its own"),
    "a loader": (DataError, "data is a DataLoader, and a private step draws its samples itself"),
    "batch norm": (SettingsError, "layer '0' is a BatchNorm1d"),
    "nowhere to keep it": (SettingsError, "no data folder to keep the account in; set privacy.acc"),
    "a list": (SettingsError, "privacy.epsilon has 2 values for 1 clients"),
    "its own sampling": (SettingsError, "sampling is 'rounds', and site here has a privacy budget"),
    "no epsilon": (SettingsError, "allowed: a table with epsilon at least"),
    "damaged": (RunFolderError, "the site's privacy account, cannot be read"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_private_is_refused_when_the_site_starts(what: str, tmp_path: Path) -> None:
    kind, message = WRONG[what]
    with pytest.raises(kind) as caught:
        wrong(what, tmp_path)
    assert message in str(caught.value)
