"""A run stopped at any moment and resumed ends with the very same records as one never stopped."""

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.child_processes import PATIENCE, importing_tests, started
from tests.simulation.tiny_runs import (
    STRATEGIES,
    Stopped,
    assert_same_run,
    drive,
    eventful,
    experiment,
    problem,
    resumed,
    stop_after,
    stopped_run,
)
from torch import nn

from fedcompass.errors import CheckpointError, FedcompassError, JournalError, RunFolderError
from fedcompass.simulation.executors import SerialExecutor
from fedcompass.simulation.experiment_folder import create_run, resume_run
from fedcompass.simulation.run import Run, simulate


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_resumed_from_a_checkpoint_ends_as_if_never_stopped(
    name: str, tmp_path: Path
) -> None:
    simulate(eventful(name), problem=problem(), folder=tmp_path / "whole")
    for saved, stopped in ((4, 9), (16, 22)):
        path = tmp_path / f"stopped-{saved}"
        stopped_run(eventful(name), path, saved=saved, stopped=stopped)
        assert (path / "checkpoint.safetensors").exists()
        resumed(path)
        assert_same_run(tmp_path / "whole", path)
        assert not (path / "checkpoint.safetensors").exists()


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("name", ["fedasync", "fedcompass"])
def test_a_run_stopped_again_and_again_ends_as_if_never_stopped(name: str, tmp_path: Path) -> None:
    simulate(eventful(name), problem=problem(), folder=tmp_path / "whole")
    folder = create_run(tmp_path / "pieces", eventful(name))
    stops = 0
    while True:
        try:
            simulate(
                problem=problem(), folder=folder, checkpoint_every=0.0, on_progress=stop_after(5)
            )
            break
        except Stopped:
            stops += 1
            folder = resume_run(folder.path)
    assert stops > 4
    assert_same_run(tmp_path / "whole", folder.path)


@pytest.mark.whatever_is_learned
def test_a_generator_dropped_before_the_second_checkpoint_goes_on_from_its_start(
    tmp_path: Path,
) -> None:
    tiny = problem()
    whole = simulate(experiment(), problem=tiny, folder=tmp_path / "whole")
    folder = create_run(tmp_path / "dropped", whole.experiment)
    chosen = whole.experiment
    with SerialExecutor(tiny, chosen.local, chosen.seed) as executor:
        run = Run(chosen, tiny, executor, folder=folder)
        drive(run.steps(), executor, jobs=9)
        run.close()
    saved = folder.checkpoint()
    assert saved.facts["simulation"]["now"] == 0.0
    resumed(folder.path)
    assert_same_run(tmp_path / "whole", folder.path)


@pytest.mark.whatever_is_learned
def test_a_checkpoint_waits_until_the_answers_of_one_instant_are_all_in(tmp_path: Path) -> None:
    """Equal clients answer at once; a checkpoint between two of them would lose their order."""
    chosen = experiment("fedasync", fleet={"paces": [0.25] * 4, "jitter": 0.0})
    simulate(chosen, problem=problem(), folder=tmp_path / "whole")
    stopped_run(chosen, tmp_path / "stopped", saved=6, stopped=7)
    resumed(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_the_best_model_may_be_from_before_the_stop(tmp_path: Path) -> None:
    chosen = experiment("fedasync", local={"learning_rate": 0.3}, horizon=8.0)
    whole = simulate(chosen, problem=problem(), folder=tmp_path / "whole")
    values = [row["accuracy"] for row in whole.curve]
    best = values.index(max(values))
    assert best < len(values) - 5
    stopped_run(chosen, tmp_path / "stopped", saved=best + 3, stopped=best + 4)
    resumed(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_that_ends_at_its_target_can_be_resumed(tmp_path: Path) -> None:
    chosen = eventful("fedasync", target=0.8, stop_at_target=True, local={"learning_rate": 0.03})
    whole = simulate(chosen, problem=problem(), folder=tmp_path / "whole")
    assert whole.summary["time_to_target"] < chosen.horizon
    stopped_run(chosen, tmp_path / "stopped", saved=5, stopped=8)
    resumed(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("target", [0.6, 0.8, 1.0], ids=["early", "late", "never"])
def test_a_run_that_goes_on_past_its_target_can_be_resumed(target: float, tmp_path: Path) -> None:
    """Stopped before, around and after the time it goes on to at least."""
    chosen = eventful(
        "fedasync",
        target=target,
        stop_at_target=True,
        run_at_least=4.0,
        local={"learning_rate": 0.03},
    )
    simulate(chosen, problem=problem(), folder=tmp_path / "whole")
    folder = create_run(tmp_path / "pieces", chosen)
    while True:
        try:
            simulate(
                problem=problem(), folder=folder, checkpoint_every=0.0, on_progress=stop_after(3)
            )
            break
        except Stopped:
            folder = resume_run(folder.path)
    assert_same_run(tmp_path / "whole", folder.path)


@pytest.mark.whatever_is_learned
def test_a_run_of_processes_can_be_resumed_serially(tmp_path: Path) -> None:
    simulate(eventful("fedbuff"), problem=problem(), folder=tmp_path / "whole")
    folder = create_run(tmp_path / "stopped", eventful("fedbuff"))
    with pytest.raises(Stopped):
        simulate(
            problem=problem(),
            folder=folder,
            executor="processes",
            workers=2,
            checkpoint_every=0.0,
            on_progress=stop_after(12),
        )
    resumed(folder.path)
    assert_same_run(tmp_path / "whole", folder.path)


def started_in_another_process(
    folder: Path, executor: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A run that never comes to its end, with a checkpoint every 0.1 s, as a shell starts it."""
    script = (
        "import time\n"
        "from itertools import chain, repeat\n"
        "from tests.simulation.tiny_runs import eventful, problem, simulate\n"
        "pauses = chain(repeat(0.1, 20), repeat(1000))\n"
        "if __name__ == '__main__':\n"
        f"    simulate(eventful('fedcompass'), problem=problem(), folder={str(folder)!r},\n"
        f"        executor={executor!r}, workers=2, checkpoint_every=0.1,\n"
        "        on_progress=lambda _: time.sleep(next(pauses)))\n"
    )
    path = folder.with_suffix(".py")
    path.write_text(script)
    return started(
        [sys.executable, path],
        env={**os.environ, **importing_tests()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize(
    ("number", "executor"),
    [(signal.SIGKILL, "serial"), (signal.SIGINT, "processes")],
    ids=["killed", "Ctrl-C with workers"],
)
def test_a_process_that_was_ended_leaves_a_run_that_can_be_resumed(
    number: signal.Signals, executor: str, tmp_path: Path
) -> None:
    simulate(eventful("fedcompass"), problem=problem(), folder=tmp_path / "whole")
    path = tmp_path / "ended"
    with started_in_another_process(path, executor) as process:
        wait_for(path / "checkpoint.safetensors", process)
        time.sleep(0.35)
        os.killpg(process.pid, number)
        _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == -number
    assert complaints.count("Traceback") == (number == signal.SIGINT), complaints
    resumed(path)
    assert_same_run(tmp_path / "whole", path)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a stopped run with a checkpoint."""
    path = tmp_path / "stopped"
    stopped_run(experiment(), path, saved=8, stopped=10)
    return path


def refusal_to_resume(path: Path, kind: type[FedcompassError]) -> str:
    with pytest.raises(kind) as caught:
        resumed(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.whatever_is_learned
def test_a_damaged_checkpoint_is_one_clear_line(stopped: Path) -> None:
    checkpoint = stopped / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    assert "checkpoint.safetensors cannot be read" in refusal_to_resume(stopped, CheckpointError)


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("missing", ["simulation", "evaluations", "journal_bytes"])
def test_a_checkpoint_without_one_of_its_facts_is_one_clear_line(
    stopped: Path, missing: str
) -> None:
    folder = resume_run(stopped)
    saved = folder.checkpoint()
    del saved.facts[missing]
    folder.save_checkpoint(saved.tensors, saved.facts)
    assert "checkpoint" in refusal_to_resume(stopped, CheckpointError)


@pytest.mark.whatever_is_learned
def test_a_checkpoint_without_a_start_model_is_one_clear_line(stopped: Path) -> None:
    folder = resume_run(stopped)
    saved = folder.checkpoint()
    kept = {name: t for name, t in saved.tensors.items() if not name.startswith("start.")}
    assert kept != saved.tensors
    folder.save_checkpoint(kept, saved.facts)
    assert "checkpoint" in refusal_to_resume(stopped, CheckpointError)


@pytest.mark.whatever_is_learned
def test_a_journal_shorter_than_its_checkpoint_is_one_clear_line(stopped: Path) -> None:
    (stopped / "journal.jsonl").write_bytes(b"")
    assert "journal.jsonl has 0 bytes" in refusal_to_resume(stopped, JournalError)


@pytest.mark.whatever_is_learned
def test_a_run_is_not_resumed_with_another_model(stopped: Path) -> None:
    other = replace(problem(), model=partial(nn.Linear, 6, 2))
    with pytest.raises(RunFolderError, match=r"another problem \(a model of 57 .* of 14 param"):
        simulate(problem=other, folder=resume_run(stopped))


@pytest.mark.whatever_is_learned
def test_a_folder_is_not_continued_with_another_experiment(stopped: Path) -> None:
    with pytest.raises(RunFolderError, match="belongs to another experiment"):
        simulate(experiment(seed=5), problem=problem(), folder=resume_run(stopped))
