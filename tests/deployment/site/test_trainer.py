"""A site's trainer, its local rounds, and the app.py that makes it."""

import itertools
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import torch
from tests.deployment.site_apps import (
    SGD,
    SITE,
    SLOW_APP,
    CountingTrainer,
    linear,
    samples,
    start_state,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fedcompass import Samples
from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.app.app_file import load_app
from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.errors import AppError, DataError, SettingsError, TaskFailed
from fedcompass.settings.training import Sampling
from fedcompass.training import LocalSettings, LocalTrainer, Problem
from fedcompass.training.optimizers import build_optimizer


def rounds(trainer: Trainer, site: Site = SITE) -> SiteRounds:
    return SiteRounds(linear(), trainer, site)


def ended(trainer: Trainer, *, task: int = 1, steps: int = 5, site: Site = SITE) -> FlatState:
    return rounds(trainer, site).run(start_state()[1], steps=steps, task=task).end


@pytest.mark.parametrize("steps", [1, 3, 300])
def test_exactly_so_many_steps_are_trained(steps: int) -> None:
    trainer = CountingTrainer()
    done = rounds(trainer).run(start_state()[1], steps=steps, task=1)
    assert done.steps_done == len(trainer.batches) == steps
    assert done.seconds > 0
    assert 0 < done.loss < 10


def test_a_round_does_what_plain_pytorch_does_with_the_same_batches() -> None:
    trainer = CountingTrainer()
    layout, start = start_state()
    end = rounds(trainer).run(start, steps=4, task=1).end
    model = linear()
    layout.load(model, start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in trainer.batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert torch.equal(end.trainable, layout.state_of(model).trainable)


@pytest.mark.parametrize("sampling", [None, *get_args(Sampling)])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_site_trains_to_the_bit_as_a_simulated_client_does(
    optimizer: Literal["sgd", "adam"],
    sampling: Sampling | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def vary(inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs + torch.rand(inputs.shape, generator=generator)

    chosen = LocalSettings(
        optimizer=optimizer, learning_rate=0.1, batch_size=4, sampling=sampling or "epochs"
    )
    dropping = partial(nn.Sequential, nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    everybody = (samples(8), samples(20))
    problem = Problem(
        model=dropping, clients=everybody, test=everybody[0], transform=torch.neg, augment=vary
    )
    client = LocalTrainer(problem, chosen, seed=3)
    start = client.initial_state()
    wanted = client.train(
        start, client=1, local_round=7, steps=300, payload="model", steps_before=33
    )
    monkeypatch.setattr("fedcompass.deployment.site.local_round._number", lambda _name: 1)
    trainer = Trainer(
        data=everybody[1],
        optimizer=partial(build_optimizer, chosen),
        batch_size=4,
        sampling=sampling,
        transform=torch.neg,
        augment=vary,
        seed=3,
    )
    site = SiteRounds(dropping(), trainer, SITE)
    done = site.run(start, steps=300, task=7, steps_before=33)
    assert torch.equal(done.end.trainable, wanted.trainable)


def test_the_same_task_gives_the_same_bits_and_others_do_not() -> None:
    first = ended(CountingTrainer()).trainable
    again = rounds(CountingTrainer())
    again.run(start_state()[1], steps=7, task=2)  # what was done before does not matter
    assert torch.equal(first, again.run(start_state()[1], steps=5, task=1).end.trainable)
    later = again.run(start_state()[1], steps=5, task=1, steps_before=1).end
    assert not torch.equal(first, later.trainable)
    assert not torch.equal(first, ended(CountingTrainer(), site=Site("there")).trainable)
    assert not torch.equal(first, ended(CountingTrainer(seed=1)).trainable)


@pytest.mark.parametrize("sampling", ["replacement", "rounds"])
def test_a_task_draws_its_own_batches_where_they_do_not_go_on(sampling: Sampling) -> None:
    first = ended(CountingTrainer(sampling=sampling)).trainable
    assert not torch.equal(first, ended(CountingTrainer(sampling=sampling), task=2).trainable)
    again = rounds(CountingTrainer(sampling=sampling))
    same = again.run(start_state()[1], steps=5, task=1, steps_before=9).end
    assert torch.equal(first, same.trainable)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_sites_tasks_read_its_data_in_passes_whatever_their_lengths(wrapped: bool) -> None:
    data = samples()  # 20 of them
    tensors = TensorDataset(data.tensor, data.targets) if wrapped else data
    trainer = CountingTrainer(data=tensors, batch_size=8)
    site, before = rounds(trainer), 0
    for task, steps in enumerate((1, 4, 2, 3), start=1):
        site.run(start_state()[1], steps=steps, task=task, steps_before=before)
        before += steps
    seen = torch.cat([inputs for inputs, _ in trainer.batches])
    for one_pass in torch.split(seen, 20):
        assert sorted(one_pass.tolist()) == sorted(data.tensor.tolist())
    assert not torch.equal(seen[:20], seen[20:40])


def test_a_sites_sampling_is_known_and_not_for_data_with_an_order_of_its_own() -> None:
    with pytest.raises(SettingsError, match="sampling is 'once'; allowed: replacement, epochs, r"):
        CountingTrainer(sampling="once")
    loader = DataLoader(TensorDataset(torch.zeros(4, 2), torch.zeros(4)), batch_size=2)
    for data in (loader, Numbers()):
        with pytest.raises(SettingsError, match=r"sampling is 'epochs', and data is a .*own order"):
            CountingTrainer(data=data, samples=5, sampling="epochs")


def test_the_optimizer_is_new_in_every_round() -> None:
    trainer = CountingTrainer()
    both = rounds(trainer)
    both.run(start_state()[1], steps=2, task=1)
    both.run(start_state()[1], steps=2, task=2)
    first, second, third, fourth = trainer.optimizers
    assert first is second
    assert third is fourth
    assert first is not third


def test_a_round_that_is_told_to_stop_returns_what_it_has() -> None:
    trainer = CountingTrainer()
    done = rounds(trainer).run(
        start_state()[1], steps=50, task=1, should_stop=lambda: len(trainer.batches) == 3
    )
    assert done.steps_done == 3
    assert torch.equal(done.end.trainable, ended(CountingTrainer(), steps=3).trainable)


def test_a_trainer_stops_itself_by_its_own_rule() -> None:
    class UntilFour(CountingTrainer):
        def should_stop(self) -> bool:
            return len(self.batches) == 4

    assert rounds(UntilFour()).run(start_state()[1], steps=50, task=1).steps_done == 4


def test_a_round_ends_when_its_seconds_are_over_but_not_before_one_step() -> None:
    ticks = itertools.count(step=0.5)  # the clock is read twice in a step
    trainer = CountingTrainer(max_seconds=3.0)
    timed = SiteRounds(linear(), trainer, SITE, clock=lambda: float(next(ticks)))
    assert timed.run(start_state()[1], steps=50, task=1).steps_done == 3
    hasty = CountingTrainer(max_seconds=1e-9)
    assert rounds(hasty).run(start_state()[1], steps=50, task=1).steps_done == 1


def test_a_trainer_keeps_the_pace_it_is_given() -> None:
    done = rounds(CountingTrainer(seconds_per_step=0.02)).run(start_state()[1], steps=10, task=1)
    assert done.seconds >= 0.2


def test_a_loss_that_is_not_finite_is_told_with_its_step() -> None:
    def square(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean()

    trainer = CountingTrainer(optimizer=lambda p: torch.optim.SGD(p, lr=1e9), loss=square)
    with pytest.raises(TaskFailed, match=r"^the loss is (nan|inf) at step \d+ of 60 of task 4; "):
        rounds(trainer).run(start_state()[1], steps=60, task=4)
    assert len(trainer.batches) <= 32  # it does not train on in vain


def test_the_step_of_the_first_bad_loss_is_named() -> None:
    class BadAtTwenty(CountingTrainer):
        def train_step(self, *arguments: Any) -> Any:
            loss = super().train_step(*arguments)
            return loss * float("nan") if len(self.batches) == 20 else loss

    with pytest.raises(TaskFailed, match="the loss is nan at step 20 of 60"):
        rounds(BadAtTwenty()).run(start_state()[1], steps=60, task=1)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda outputs, _: outputs, "a tensor of shape"),
        (lambda outputs, _: outputs.mean().item(), "return the tensor itself"),
        (lambda outputs, _: outputs.mean().detach(), "a tensor without a gradient"),
    ],
)
def test_a_loss_that_is_no_scalar_with_a_gradient_is_refused_in_one_line(
    loss: Any, said: str
) -> None:
    with pytest.raises(SettingsError, match=rf"^loss <lambda> \(test_trainer.py:\d+\) .*{said}"):
        rounds(CountingTrainer(loss=loss)).run(start_state()[1], steps=1, task=1)


def test_a_step_must_return_its_loss() -> None:
    class Silent(CountingTrainer):
        def train_step(self, *arguments: Any) -> Any:
            super().train_step(*arguments)

    with pytest.raises(DataError, match="train_step returned None; return the loss"):
        rounds(Silent()).run(start_state()[1], steps=1, task=1)


def test_a_map_style_dataset_gives_the_batches_of_its_tensors() -> None:
    data = samples()
    plain, wrapped = (
        CountingTrainer(),
        CountingTrainer(data=TensorDataset(data.tensor, data.targets)),
    )
    assert torch.equal(ended(plain).trainable, ended(wrapped).trainable)
    assert wrapped.sample_count() == 20


class Numbers(IterableDataset[tuple[Tensor, int]]):
    """Five samples, each of its number."""

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return ((torch.full((2,), float(number)), 0) for number in range(5))


def first_numbers(trainer: CountingTrainer) -> list[list[float]]:
    return [inputs[:, 0].tolist() for inputs, _ in trainer.batches]


def test_a_stream_goes_on_from_round_to_round_and_starts_again_at_its_end() -> None:
    trainer = CountingTrainer(data=Numbers(), batch_size=2, samples=5)
    both = rounds(trainer)
    both.run(start_state()[1], steps=2, task=1)
    both.run(start_state()[1], steps=3, task=2)
    assert first_numbers(trainer) == [[0, 1], [2, 3], [4], [0, 1], [2, 3]]


def test_a_loader_keeps_its_own_batches() -> None:
    data = samples()
    loader = DataLoader(TensorDataset(data.tensor, data.targets), batch_size=5)
    trainer = CountingTrainer(data=loader)
    ended(trainer, steps=6)
    assert [len(inputs) for inputs, _ in trainer.batches] == [5] * 6
    assert torch.equal(trainer.batches[4][0], trainer.batches[0][0])
    assert trainer.sample_count() == 20


def test_batches_may_be_dictionaries() -> None:
    class Named(torch.utils.data.Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, row: int) -> dict[str, Tensor]:
            return {"x": torch.full((2,), float(row)), "y": torch.tensor(row % 2)}

    class FromNames(Trainer):
        def train_step(self, model: Any, optimizer: Any, batch: Any, generator: Any) -> Tensor:
            return super().train_step(model, optimizer, (batch["x"], batch["y"]), generator)

    ended(FromNames(data=Named(), optimizer=SGD, batch_size=4))


def test_a_loader_without_batches_is_told() -> None:
    class Nothing(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            return iter(())

    with pytest.raises(DataError, match="gives no batch at all"):
        ended(CountingTrainer(data=Nothing(), samples=1))


def test_inputs_are_prepared_and_varied_as_asked() -> None:
    seen: list[Tensor] = []

    def vary(inputs: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(torch.rand(1, generator=generator))
        return inputs

    data = Samples(torch.ones(8, 2, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))
    for _ in range(2):
        ended(CountingTrainer(data=data, transform=Tensor.float, augment=vary), steps=2)
    assert seen[:2] == seen[2:]
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"batch_size": 0}, SettingsError, "batch_size is 0; allowed: at least 1"),
        ({"max_seconds": 0.0}, SettingsError, "max_seconds is 0.0; allowed: above 0, or None"),
        (
            {"seconds_per_step": -1.0},
            SettingsError,
            "seconds_per_step is -1.0; allowed: 0 or above",
        ),
        ({"optimizer": 0.1}, SettingsError, "optimizer is a float; give a function of the"),
        ({"data": samples(0)}, DataError, "this site has 0 samples; it needs at least 1"),
        ({"data": Numbers()}, DataError, "a Numbers does not say how many samples it has"),
    ],
)
def test_a_trainer_that_cannot_work_is_refused(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        CountingTrainer(**fields)


def test_a_model_without_anything_to_train_is_refused() -> None:
    frozen = linear().requires_grad_(False)
    with pytest.raises(SettingsError, match="no parameter that trains"):
        SiteRounds(frozen, CountingTrainer(), SITE)


def written(folder: Path, text: str) -> Path:
    path = folder / "app.py"
    path.write_text(text)
    return path


def test_an_app_is_loaded_by_its_path(tmp_path: Path) -> None:
    app = load_app(written(tmp_path, SLOW_APP))
    assert app.trainer(Site("a", data=tmp_path)).sample_count() == 8
    assert app.test_set() is None
    assert app.evaluate(app.model()) is None


def test_the_initial_model_depends_on_the_seed_alone(tmp_path: Path) -> None:
    app = load_app(written(tmp_path, SLOW_APP))
    weights = [app.model(seed).state_dict()["weight"] for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_app_imports_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a_neighbour_of_the_app.py").write_text("from torch.nn import Linear\n")
    text = "from a_neighbour_of_the_app import Linear\ndef trainer(site): pass\n"
    app = load_app(written(tmp_path, text + "def model(): return Linear(1, 1)\n"))
    assert isinstance(app.model(), nn.Linear)


WITHOUT_MISTAKE = "def model():\n    pass\ndef trainer(site):\n    pass\n"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("def model(:\n", ":1: ", "SyntaxError: invalid syntax"),
        ("import nothing_of_this_name\n", ":1 in <module>: ", "ModuleNotFoundError: No module"),
        ("x = 1\nx = undefined\n", ":2 in <module>: ", "NameError: name 'undefined' is not"),
        ("def trainer(site): pass\n", " ", "has no function model()"),
        ("def model(): pass\n", " ", "has no function trainer()"),
    ],
)
def test_an_app_that_does_not_load_is_one_line_with_its_place(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(AppError) as caught:
        load_app(path)
    assert str(caught.value).startswith(f"{path}{place}{message}")
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_function_is_told_by_the_users_own_line(tmp_path: Path) -> None:
    lines = ["import torch", "def model():", "    return torch.nn.Linear(-1)", "def trainer(s):"]
    lines += ["    return helper(s)", "def helper(s):", "    return s.settings['batch']"]
    path = written(tmp_path, "\n".join(lines))
    app = load_app(path)
    with pytest.raises(AppError, match=rf"^{path}:3 in model: TypeError: "):
        app.model()
    with pytest.raises(AppError, match=rf"^{path}:7 in helper: KeyError: 'batch'$"):
        app.trainer(SITE)


def test_a_function_that_returns_the_wrong_thing_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, WITHOUT_MISTAKE + "def test_set(): return 3\n")
    app = load_app(path)
    with pytest.raises(AppError, match=r"model\(\) returned None; it must return a torch.nn.Mod"):
        app.model()
    with pytest.raises(AppError, match=r"trainer\(\) returned None; it must return a fedcompass"):
        app.trainer(SITE)
    with pytest.raises(AppError, match=r"test_set\(\) returned a int; it must return fedcompass"):
        app.test_set()


def test_an_apps_own_measures_are_numbers(tmp_path: Path) -> None:
    text = WITHOUT_MISTAKE + "def evaluate(model): return {'dice': 1}\n"
    assert load_app(written(tmp_path, text)).evaluate(linear()) == {"dice": 1.0}
    text = WITHOUT_MISTAKE + "def evaluate(model): return 0.5\n"
    with pytest.raises(AppError, match=r"evaluate\(\) returned a float; it must return a dict"):
        load_app(written(tmp_path, text)).evaluate(linear())


def test_a_missing_app_says_where_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(AppError, match=r"there is no file .*app\.py; `fedcompass deploy init`"):
        load_app(tmp_path / "app.py")
