"""Whole runs on an NVIDIA GPU: the same schedule as anywhere, resumable, within its memory."""

import gc
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from fedcompass.experiment import Experiment
from fedcompass.settings.training import Sampling
from fedcompass.simulation.executors.stacked import StackedExecutor
from fedcompass.simulation.experiment_folder import create_run, resume_run
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.run import Run, simulate
from fedcompass.training import LocalSettings, LocalTrainer, Problem
from fedcompass.training.stacked import StackedTask, StackedTrainer
from fedcompass.training.stacked.chosen_trainer import stacked_trainer
from fedcompass.training.streams import RowStream, TaskRows, row_stream, stream_key

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU")
CUDA = torch.device("cuda")


def journal(folder: Path) -> str:
    return (folder / "journal.jsonl").read_text()


def experiment(name: str = "fedcompass", sampling: Sampling = "replacement") -> Experiment:
    return Experiment(strategy={"name": name}, local={"sampling": sampling}, horizon=15.0)


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("fedcompass", "replacement"),
        ("fedavg", "replacement"),
        ("fedat", "replacement"),
        ("fedcompass", "epochs"),
        ("fedcompass", "rounds"),
    ],
)
def test_stacked_and_serial_runs_keep_the_same_journal(
    name: str, sampling: Sampling, tmp_path: Path
) -> None:
    stacked, serial = (
        simulate(
            experiment(name, sampling), executor=executor, device="cuda", folder=tmp_path / executor
        )
        for executor in ("stacked", "serial")
    )
    assert journal(tmp_path / "stacked") == journal(tmp_path / "serial")
    assert stacked.top() == pytest.approx(serial.top(), abs=0.1)


def test_a_stopped_run_goes_on_as_if_it_never_stopped(tmp_path: Path) -> None:
    simulate(experiment(), executor="stacked", device="cuda", folder=tmp_path / "whole")
    chosen, folder = experiment(), create_run(tmp_path / "stopped", experiment())
    problem = build_problem(chosen)
    executor = StackedExecutor(problem, chosen.local, chosen.seed, "cuda")
    run = Run(chosen, problem, executor, folder=folder, device="cuda")
    steps = run.steps(checkpoint_every=0.0)
    job = next(steps)
    for _ in range(30):
        job = steps.send(executor.result(job))
    steps.close()
    run.close()
    resumed = resume_run(tmp_path / "stopped")
    simulate(folder=resumed, executor="stacked", device="cuda")
    assert journal(tmp_path / "stopped") == journal(tmp_path / "whole")


@pytest.mark.parametrize("sampling", get_args(Sampling))
def test_rows_are_those_of_a_cpu_and_are_drawn_without_waiting_for_the_gpu(
    sampling: Sampling,
) -> None:
    streams = [
        row_stream(sampling, seed=1, client=client, local_round=3, steps_before=50 * client)
        for client in range(6)
    ]
    given = streams, [1, 7, 64, 1000, 12_000, 12_345], 64
    here, there = TaskRows(*given), TaskRows(*given, device=CUDA)
    for tasks, first_step, steps in ((6, 0, 256), (6, 256, 40), (2, 296, 1)):
        torch.cuda.set_sync_debug_mode("error")
        try:
            drawn = there.draw(tasks, first_step=first_step, steps=steps)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.equal(drawn.cpu(), here.draw(tasks, first_step=first_step, steps=steps))


def wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def normalized() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 10))


def problem_of(model: type[nn.Module] | partial[nn.Module]) -> Problem:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 64, generator=generator), torch.arange(60) % 10
    parts = [torch.arange(0, 40), torch.arange(40, 60)]
    return Problem.from_tensors(model, train=(x, y), test=(x, y), parts=parts)


def test_a_layer_that_is_not_known_trains_by_vmap() -> None:
    settings = LocalSettings(optimizer="sgd", learning_rate=0.1, batch_size=8)
    made = stacked_trainer(problem_of(partial(normalized)).to(CUDA), settings, CUDA, None)
    assert isinstance(made, StackedTrainer)
    assert made.how.startswith("vmap")


def test_a_stack_that_does_not_fit_is_halved_until_it_does() -> None:
    settings = LocalSettings(optimizer="sgd", learning_rate=0.1, batch_size=8)
    problem = problem_of(partial(wide)).to(CUDA)
    alone = LocalTrainer(problem, settings, 0, CUDA)
    start = alone.initial_state().to(CUDA)
    tasks = [
        StackedTask(
            start=start,
            samples=problem.clients[0],
            stream=RowStream(stream_key(0, "batches", 0, 0)),
            steps=2,
            payload="delta",
        )
    ] * 64
    trainer = StackedTrainer(wide(), settings, problem.loss, device=CUDA, max_stack=64)
    total = torch.cuda.get_device_properties(CUDA).total_memory
    gc.collect()  # what earlier tests left must not be freed below, where it would make room
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved(CUDA)
    torch.cuda.set_per_process_memory_fraction(
        (reserved + 2.0e9) / total
    )  # twice as much is needed
    try:
        with pytest.raises(torch.OutOfMemoryError):
            trainer.train(tasks)
        while True:
            assert trainer.halve()
            try:
                updates = trainer.train(tasks)
            except torch.OutOfMemoryError:
                continue
            break
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    wanted = alone.train(start, client=0, local_round=0, steps=2, payload="delta")
    apart = (updates[-1].trainable - wanted.trainable).norm() / wanted.trainable.norm()
    assert float(apart) < 0.05


def test_a_model_that_fills_the_gpu_trains_alone() -> None:
    chosen = Experiment(data={"name": "mnist-mini"}, model="resnet18", local={"batch_size": 512})
    made = stacked_trainer(build_problem(chosen).to(CUDA), chosen.local, CUDA, None)
    assert isinstance(made, str)
    assert "fills a GPU by itself" in made
