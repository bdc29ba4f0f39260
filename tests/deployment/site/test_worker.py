"""A worker in this process: what it says, what it trains, and what it does not get through."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from tests.deployment.site_apps import (
    SGD,
    SITE,
    CountingTrainer,
    app_with,
    linear,
    samples,
    start_file,
    start_state,
)
from torch import nn

from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.deployment.site.site_worker import SiteWorker
from fedcompass.deployment.wire.arriving import digest_of
from fedcompass.deployment.wire.payloads import layout_digest, read_payload
from fedcompass.errors import TaskFailed

SOON = 60.0  # seconds; only a failing test waits so long


class Talk:
    """The site's end of the channel."""

    def __init__(self, worker: SiteWorker, channel: socket.socket, folder: Path) -> None:
        self.worker = worker
        self._channel, self._lines = channel, channel.makefile("r")
        self._folder, self._start = folder, start_file(folder)
        self.hello = self.hear()

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self._lines.readline())
        return heard

    def say(self, **record: Any) -> None:
        self._channel.sendall(json.dumps(record).encode() + b"\n")

    def give(self, **changes: Any) -> None:
        job = {"task": "t1", "run": "r", "number": 1, "steps": 5, "steps_before": 0}
        job |= {"version": 7, "form": "model"}
        paths = {"model": str(self._start), "payload": str(self._folder / "payload")}
        self.say(**{**job, **paths, **changes})

    def train(self, **changes: Any) -> dict[str, Any]:
        self.give(**changes)
        return self.hear()

    def payload(self, form: str = "model") -> FlatState:
        layout, start = start_state()
        return read_payload(self._folder / "payload", layout, form, start)

    def hang_up(self) -> None:
        self._lines.close()
        self._channel.close()


@contextmanager
def serving(trainer: Trainer, folder: Path, site: Site = SITE) -> Iterator[Talk]:
    worker = SiteWorker(app_with(trainer), site)
    ours, theirs = socket.socketpair()
    ours.settimeout(SOON)
    thread = threading.Thread(target=worker.serve, args=(theirs,))
    thread.start()
    talk = Talk(worker, ours, folder)
    try:
        yield talk
    finally:
        talk.hang_up()
        thread.join(SOON)
        theirs.close()
        assert not thread.is_alive(), "a worker ends when its site's process does"


class Gate:
    """A hook for a trainer: the given step waits until it is opened."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, step: int) -> None:
        if step == self.step:
            self.reached.set()
            assert self.opened.wait(SOON)


def test_a_worker_says_first_how_many_samples_and_which_model_it_has(tmp_path: Path) -> None:
    with serving(CountingTrainer(), tmp_path) as talk:
        layout, _ = start_state()
        assert talk.hello == {"samples": 20, "layout": layout_digest(layout), "leaving": ""}


@pytest.mark.parametrize("form", ["model", "change-bfloat16"])
def test_a_task_trains_exactly_its_steps_and_writes_the_end_model(
    tmp_path: Path, form: str
) -> None:
    trainer = CountingTrainer()
    with serving(trainer, tmp_path) as talk:
        answer = talk.train(steps=5, number=3, form=form)
    assert len(trainer.batches) == 5
    assert (answer["task"], answer["steps_done"], answer["samples"]) == ("t1", 5, 20)
    assert answer["seconds"] > 0
    assert answer["loss"] > 0
    assert answer["digest"] == digest_of(tmp_path / "payload")
    _, start = start_state()
    expected = SiteRounds(linear(), CountingTrainer(), SITE).run(start, steps=5, task=3).end
    if form == "model":
        assert torch.equal(talk.payload().trainable, expected.trainable)
    else:
        torch.testing.assert_close(
            talk.payload(form).trainable, expected.trainable, rtol=0, atol=0.01
        )


def test_the_same_task_gives_the_same_bits_again(tmp_path: Path) -> None:
    with serving(CountingTrainer(), tmp_path) as talk:
        talk.train(number=3)
        first = talk.payload()
        talk.train(number=4, steps_before=5)
        assert not torch.equal(talk.payload().trainable, first.trainable)
        talk.train(number=3)
        assert torch.equal(talk.payload().trainable, first.trainable)


def test_a_task_that_is_given_up_ends_after_its_present_step(tmp_path: Path) -> None:
    gate = Gate(step=3)
    with serving(CountingTrainer(gate), tmp_path) as talk:
        talk.give(steps=50)
        assert gate.reached.wait(SOON)
        talk.say(stop="t1")
        talk.give(task="t2", number=2, steps=2)
        while "t1" not in talk.worker._stopped:
            sleep(0.001)
        gate.opened.set()
        first, second = talk.hear(), talk.hear()
        assert (first["task"], first["steps_done"]) == ("t1", 3)
        assert (second["task"], second["steps_done"]) == ("t2", 2)


def test_a_worker_whose_site_is_gone_ends_in_the_midst_of_a_task(tmp_path: Path) -> None:
    gate = Gate(step=2)
    trainer = CountingTrainer(gate)
    with serving(trainer, tmp_path) as talk:
        talk.give(steps=10**6)
        assert gate.reached.wait(SOON)
        talk.hang_up()
        gate.opened.set()
    assert len(trainer.batches) < 10**6


def test_an_error_in_the_users_code_is_one_line_and_the_worker_lives_on(tmp_path: Path) -> None:
    def hook(step: int) -> None:
        if not trainer.batches:
            trainer.batches.append(None)
            raise ValueError("no\nsuch picture")

    trainer = CountingTrainer(hook)
    with serving(trainer, tmp_path) as talk:
        assert talk.train()["error"] == "app.py: ValueError: no such picture"
        assert talk.train()["steps_done"] == 5


def test_a_loss_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    def nan(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum() * float("nan")

    with serving(CountingTrainer(loss=nan), tmp_path) as talk:
        told = talk.train()["error"]
    assert told == (
        "the loss is nan at step 1 of 5 of task 1; this is the model as the server sent it: see "
        "the server's audit, and your data"
    )


def test_a_loss_that_stops_being_finite_is_the_sites_own(tmp_path: Path) -> None:
    def nan_at_last(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum() * (float("nan") if len(trainer.batches) >= 3 else 1.0)

    trainer = CountingTrainer(loss=nan_at_last)
    with serving(trainer, tmp_path) as talk:
        told = talk.train()["error"]
    assert told == (
        "the loss is nan at step 3 of 5 of task 1; lower the learning rate or look at the site's "
        "data"
    )


def test_an_update_that_no_server_will_see_is_checked_by_the_site_itself(tmp_path: Path) -> None:
    rate = [0.1]
    trainer = CountingTrainer(optimizer=lambda p: torch.optim.SGD(p, lr=rate[0]))
    with serving(trainer, tmp_path) as talk:
        for number in range(1, 11):
            assert "error" not in talk.train(number=number, form="kept")
        rate[0] = 1e5
        told = talk.train(number=11, form="kept")["error"]
        assert "100 times that is allowed (times_median)" in told
        rate[0] = 0.1
        assert "error" not in talk.train(number=12, form="kept")


def test_a_site_keeps_no_update_with_a_negative_variance(tmp_path: Path) -> None:
    class Spoiling(CountingTrainer):
        def train_step(self, model: Any, *others: Any) -> Any:
            loss = super().train_step(model, *others)
            model[1].running_var.neg_()
            return loss

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    worker = SiteWorker(app_with(Spoiling(), network), SITE)
    _, start = start_state(network)
    done = worker._rounds.run(start, steps=1, task=1)
    with pytest.raises(TaskFailed, match=r"1\.running_var has a variance of -"):
        worker._kept(start, done)


def test_a_task_without_steps_is_refused(tmp_path: Path) -> None:
    with serving(CountingTrainer(), tmp_path) as talk:
        assert "asks for 0 steps; a task has at least 1" in talk.train(steps=0)["error"]


def test_a_model_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(bytes(100))
    with serving(CountingTrainer(), tmp_path) as talk:
        told = talk.train(model=str(tmp_path / "other"))["error"]
    assert told == "the payload has 100 bytes; this model's has 24"


def test_a_device_that_fails_for_good_ends_the_worker(tmp_path: Path) -> None:
    def hook(step: int) -> None:
        raise torch.AcceleratorError("device-side assert", 1)

    worker = SiteWorker(app_with(CountingTrainer(hook)), SITE)
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("w") as lines:
        job = {"task": "t", "run": "r", "number": 1, "steps": 1, "steps_before": 0}
        job |= {"version": 0, "form": "model"}
        paths = {"model": str(start_file(tmp_path)), "payload": str(tmp_path / "payload")}
        print(json.dumps({**job, **paths}), file=lines, flush=True)
        with pytest.raises(torch.AcceleratorError):
            worker.serve(theirs)


def test_a_private_worker_says_what_is_spent_and_when_nothing_is_left(tmp_path: Path) -> None:
    budget = {"epsilon": 10.0, "noise": 1.0, "delta": 1e-5}  # for three steps
    site = Site("here", tmp_path, settings={"privacy": budget})
    trainer = Trainer(data=samples(), optimizer=SGD, batch_size=20)
    with serving(trainer, tmp_path, site) as talk:
        assert talk.hello["leaving"] == ""
        first, last = talk.train(steps=2), talk.train(steps=2)
        assert 0 < first["epsilon"] < last["epsilon"] <= 10.0
        assert last["steps_done"] == 1
        refused = talk.train(steps=1)
        assert refused["budget_spent"]
        assert refused["error"].startswith("budget spent: epsilon is ")
        assert (refused["epsilon"], refused["delta"]) == (last["epsilon"], 1e-5)
    with serving(trainer, tmp_path, site) as talk:  # a restart forgets nothing
        assert talk.hello["leaving"] == refused["error"]


def test_an_account_that_cannot_be_read_fails_the_task_and_not_the_worker(tmp_path: Path) -> None:
    site = Site("here", tmp_path, settings={"privacy": {"epsilon": 5.0, "noise": 2.0}})
    trainer = Trainer(data=samples(), optimizer=SGD, batch_size=4)
    with serving(trainer, tmp_path, site) as talk:
        (tmp_path / "privacy-account.json").write_text("?")
        for _ in range(2):
            assert "privacy account, cannot be read" in talk.train()["error"]
