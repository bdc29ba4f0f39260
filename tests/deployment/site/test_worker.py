"""A worker in this process: what it answers, what it refuses, what it remembers."""

import json
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import pytest
import torch
from tests.deployment.site_apps import (
    SITE,
    CountingTrainer,
    app_with,
    linear,
    order,
    start_arrays,
    start_state,
)

import fedcompass
from fedcompass.deployment.site import forwarder
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.deployment.site.site_worker import SiteWorker
from fedcompass.deployment.site.task_queue import SubmittedTask, TaskQueue
from fedcompass.deployment.site.worker_frames import (
    MOST_HEADER_BYTES,
    Frame,
    await_greeting,
    receive,
    send,
)
from fedcompass.deployment.site.worker_socket import listen_at
from fedcompass.deployment.wire.arrays import decode_arrays
from fedcompass.deployment.wire.messages import Arrays, Facts, WireArray
from fedcompass.errors import ProjectError, WireError, WorkerLost, WorkerRefused

SOON = 60.0  # seconds; only a failing test waits so long


@pytest.fixture
def place() -> Iterator[Path]:
    """A path for a socket: short, as sockets need it, in a folder of our own."""
    with TemporaryDirectory(prefix="fc") as folder:
        yield Path(folder) / "s"


@contextmanager
def serving(trainer: CountingTrainer, place: Path) -> Iterator[SiteWorker]:
    worker = SiteWorker(app_with(trainer), SITE)
    listener = listen_at(place)
    thread = threading.Thread(target=worker.serve, args=(listener,))
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(SOON)
        listener.close()
        assert not thread.is_alive()


@contextmanager
def in_background(call: Callable[..., Any], *arguments: Any) -> Iterator["Future[Any]"]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call, *arguments)


class Gate:
    """A hook for a trainer: the given step waits until it is opened."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, step: int) -> None:
        if step == self.step:
            self.reached.set()
            assert self.opened.wait(SOON)


def train(place: Path, facts: Facts) -> tuple[Facts, Arrays]:
    return forwarder.train(place, facts, start_arrays(), patience=SOON)


def test_a_query_says_who_the_site_is(place: Path) -> None:
    with serving(CountingTrainer(), place):
        assert forwarder.query(place) == {
            "protocol": 1,
            "samples": 20,
            "site": "here",
            "fedcompass": fedcompass.__version__,
        }


def test_a_task_trains_exactly_its_steps_and_returns_the_end_model(place: Path) -> None:
    trainer = CountingTrainer()
    with serving(trainer, place):
        facts, arrays = train(place, order(steps=5, task=3))
    assert len(trainer.batches) == 5
    numbers = {key: facts.pop(key) for key in ("seconds", "loss")}
    assert all(isinstance(value, float) and value > 0 for value in numbers.values())
    assert facts == {"steps_done": 5, "num-examples": 20, "task": 3, "version": 7}
    layout, start = start_state()
    expected = SiteRounds(linear(), CountingTrainer(), SITE).run(start, steps=5, task=3).end
    assert torch.equal(decode_arrays(arrays, layout).trainable, expected.trainable)


def test_the_same_task_is_answered_again_from_memory(place: Path) -> None:
    trainer = CountingTrainer()
    with serving(trainer, place):
        first = train(place, order(task=3))
        assert train(place, order(task=3)) == first
        assert len(trainer.batches) == 5
        train(place, order(task=3, run="another"))
        assert len(trainer.batches) == 10


def test_a_task_whose_forwarder_went_away_is_finished_and_remembered(place: Path) -> None:
    gate = Gate(step=2)
    trainer = CountingTrainer(gate)
    with serving(trainer, place):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(place))
            await_greeting(connection)
            send(connection, Frame("train", order(steps=4), start_arrays()))
            assert gate.reached.wait(SOON)
        gate.opened.set()
        facts, _ = train(place, order(steps=4))
        assert facts["steps_done"] == len(trainer.batches) == 4


def test_a_second_request_for_a_task_in_training_waits_for_the_same_answer(place: Path) -> None:
    gate = Gate(step=2)
    trainer = CountingTrainer(gate)
    with serving(trainer, place), in_background(train, place, order()) as first:
        assert gate.reached.wait(SOON)
        with in_background(train, place, order()) as second:
            gate.opened.set()
            assert second.result(SOON) == first.result(SOON)
    assert len(trainer.batches) == 5


def test_a_query_is_answered_in_the_midst_of_a_task(place: Path) -> None:
    gate = Gate(step=2)
    with serving(CountingTrainer(gate), place), in_background(train, place, order()) as task:
        assert gate.reached.wait(SOON)
        assert forwarder.query(place)["samples"] == 20
        gate.opened.set()
        assert task.result(SOON)[0]["steps_done"] == 5


def test_a_stopped_worker_sends_what_it_has(place: Path) -> None:
    gate = Gate(step=3)
    trainer = CountingTrainer(gate)
    with serving(trainer, place) as worker, in_background(train, place, order(steps=50)) as task:
        assert gate.reached.wait(SOON)
        worker.stop()
        gate.opened.set()
        facts, arrays = task.result(SOON)
    assert facts["steps_done"] == 3
    layout, start = start_state()
    expected = SiteRounds(linear(), CountingTrainer(), SITE).run(start, steps=3, task=1).end
    assert torch.equal(decode_arrays(arrays, layout).trainable, expected.trainable)


def test_a_newer_task_ends_the_older_one_early(place: Path) -> None:
    gate = Gate(step=3)
    first, second = order(steps=50), order(steps=2, task=2)
    with serving(CountingTrainer(gate), place) as worker, in_background(train, place, first) as old:
        assert gate.reached.wait(SOON)
        with in_background(train, place, second) as new:
            while worker._tasks._waiting is None:
                sleep(0.001)
            with pytest.raises(WorkerRefused, match="task 0 is older than task 1"):
                train(place, order(task=0))
            gate.opened.set()
            assert old.result(SOON)[0]["steps_done"] == 3
            assert new.result(SOON)[0]["steps_done"] == 2


def test_whoever_waits_for_a_task_is_told_when_the_process_must_end() -> None:
    tasks = TaskQueue()
    waiting = tasks.submit(SubmittedTask(("r", 1), 1, 0, {}))
    taken = tasks.take()
    assert taken is not None

    def device_fails() -> Frame:
        raise torch.AcceleratorError("device-side assert", 1)

    with pytest.raises(torch.AcceleratorError):
        tasks.answer(taken, device_fails)
    with pytest.raises(WorkerRefused, match="the worker ends with AcceleratorError"):
        waiting.result(SOON)


def test_a_task_that_waits_is_refused_when_another_replaces_it_or_the_desk_closes() -> None:
    tasks = TaskQueue()
    first = tasks.submit(SubmittedTask(("r", 1), 1, 0, {}))
    second = tasks.submit(SubmittedTask(("r", 2), 1, 0, {}))
    with pytest.raises(WorkerRefused, match="task 1 was replaced by task 2"):
        first.result(SOON)
    tasks.close()
    with pytest.raises(WorkerRefused, match="the worker is stopping"):
        second.result(SOON)
    with pytest.raises(WorkerRefused, match="the worker is stopping; ask again"):
        tasks.submit(SubmittedTask(("r", 3), 1, 0, {}))
    assert tasks.take() is None


def test_an_error_in_the_users_code_is_one_line_and_the_worker_lives_on(place: Path) -> None:
    def hook(step: int) -> None:
        if not trainer.batches:
            trainer.batches.append(None)
            raise ValueError("no\nsuch picture")

    trainer = CountingTrainer(hook)
    with serving(trainer, place):
        with pytest.raises(
            WorkerRefused, match=r"^site here: app.py: ValueError: no such picture$"
        ):
            train(place, order())
        assert train(place, order())[0]["steps_done"] == 5  # a failure is not remembered


def test_a_loss_that_is_not_finite_is_reported(place: Path) -> None:
    def nan(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum() * float("nan")

    with (
        serving(CountingTrainer(loss=nan), place),
        pytest.raises(WorkerRefused, match=r"^site here: the loss is nan at step 1 of 5 of task 1"),
    ):
        train(place, order())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": 2}, "the server speaks protocol 2, this site 1"),
        ({"steps": "many"}, "a task has steps 'many'; allowed: a whole number"),
        ({"steps": 0}, "asks for 0 steps; a task has at least 1"),
        ({"task": -1}, "a task has task -1; allowed"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(place: Path, changes: Facts, message: str) -> None:
    with serving(CountingTrainer(), place), pytest.raises(WorkerRefused, match=message):
        train(place, order() | changes)


def test_another_models_arrays_are_refused_by_name(place: Path) -> None:
    arrays = start_arrays()
    wrong = {**arrays, "bias": arrays["weight"]}
    with serving(CountingTrainer(), place):
        with pytest.raises(WorkerRefused, match="array 'bias' is"):
            forwarder.train(place, order(), wrong)
        with pytest.raises(WorkerRefused, match="array 'bias' is missing"):
            forwarder.train(place, order(), {"weight": arrays["weight"]})


def test_arrays_larger_than_the_model_are_refused_before_they_are_read(place: Path) -> None:
    huge = {"weight": WireArray("float32", (2, 2), bytes(8 << 20))}
    with (
        serving(CountingTrainer(), place),
        pytest.raises(WorkerRefused, match=r"arrays have 8388608 bytes, of \d{4} allowed; do both"),
    ):
        forwarder.train(place, order(), huge)


def raw(prefix: tuple[bytes, int, int], rest: bytes = b"") -> Frame:
    """What a reader who allows 100 bytes of arrays makes of these bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack("!4sIQ", *prefix) + rest)
        ours.shutdown(socket.SHUT_WR)
        return receive(theirs, 100)


def with_header(header: Any, payload: int = 0) -> Frame:
    text = json.dumps(header).encode()
    return raw((b"FCW1", len(text), payload), text + bytes(payload))


def test_a_promise_of_too_much_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(WireError, match="arrays have 1152921504606846976 bytes, of 100 allowed"):
        raw((b"FCW1", 10, 1 << 60))
    with pytest.raises(WireError, match="header has 4294967295 bytes, of 4194304 allowed"):
        raw((b"FCW1", 0xFFFFFFFF, 0))
    assert MOST_HEADER_BYTES == 4194304


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(WireError, match="starts with b'GET '"):
        raw((b"GET ", 1, 1))
    with pytest.raises(WireError, match="not JSON"):
        raw((b"FCW1", 3, 0), b"{x}")
    with pytest.raises(WireError, match="not JSON"):
        raw((b"FCW1", 100_000, 0), b"[" * 100_000)
    with pytest.raises(EOFError):
        raw((b"FCW1", 50, 0), b"{")


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"kind": 1, "facts": {}, "arrays": []},
        {"kind": "train", "facts": {"a": [1]}, "arrays": []},
        {"kind": "train", "facts": {}},
        {"kind": "train", "facts": {}, "arrays": [["w", "float32", [2], -8]]},
        {"kind": "train", "facts": {}, "arrays": [["w", "float32", ["2"], 8]]},
        {"kind": "train", "facts": {}, "arrays": [["w", "float32", [2], 9]]},
        {"kind": "train", "facts": {}, "arrays": [["w", "float32", [2], 4]] * 2},
    ],
)
def test_a_header_of_the_wrong_shape_is_refused(header: Any) -> None:
    with pytest.raises(WireError):
        with_header(header, payload=8)


def test_a_frame_comes_out_as_it_went_in() -> None:
    arrays = {"ä": WireArray("float32", (2,), b"12345678"), "b": WireArray("int64", (), b"")}
    frame = Frame("train", {"steps": 3, "seconds": 0.5, "run": "r"}, arrays)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, frame)
        assert receive(theirs, 8) == frame


def test_the_socket_is_for_its_own_user_alone(place: Path) -> None:
    with listen_at(place.parent / "folder" / "s"):
        socket_mode = (place.parent / "folder" / "s").stat().st_mode
        folder_mode = (place.parent / "folder").stat().st_mode
    assert stat.S_ISSOCK(socket_mode)
    assert stat.S_IMODE(socket_mode) == 0o600
    assert stat.S_IMODE(folder_mode) == 0o700


def test_a_folder_that_others_can_open_is_refused(place: Path) -> None:
    place.parent.chmod(0o755)
    with pytest.raises(ProjectError, match=r"open to others \(mode 0755\); run: chmod 700"):
        listen_at(place)


def test_a_path_too_long_for_a_socket_is_refused(place: Path) -> None:
    with pytest.raises(ProjectError, match="the system allows 107"):
        listen_at(place.parent / ("x" * 100) / "s")


def test_a_dead_workers_socket_is_replaced_and_a_living_ones_is_not(place: Path) -> None:
    listen_at(place).close()
    assert place.exists()
    with listen_at(place), pytest.raises(ProjectError, match="another worker serves"):
        listen_at(place)


def test_something_else_in_the_sockets_place_is_left_alone(place: Path) -> None:
    place.write_text("precious")
    with pytest.raises(ProjectError, match="is in the way"):
        listen_at(place)
    assert place.read_text() == "precious"


def test_more_requests_than_there_is_room_for_wait_and_are_all_answered(place: Path) -> None:
    with serving(CountingTrainer(), place), ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: forwarder.query(place), range(40)))
    assert all(answer["samples"] == 20 for answer in answers)


def test_a_worker_that_is_gone_is_reported(place: Path) -> None:
    with serving(CountingTrainer(), place):
        pass
    with pytest.raises(WorkerLost, match="no worker answers at"):
        forwarder.query(place, patience=0.0)
