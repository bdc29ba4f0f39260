"""Flower ClientApps with real Flower messages: ours with its worker, and an ordinary one."""

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import pytest
import torch
from examples.flower_client import app as ordinary
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from tests.deployment.site_apps import (
    SITE,
    CountingTrainer,
    app_with,
    linear,
    order,
    start_arrays,
    start_state,
)

from fedcompass.deployment.flower_engine import client_app
from fedcompass.deployment.flower_engine.flower_transport import arrays_of, facts_of, record_of
from fedcompass.deployment.flower_engine.own_client_app import load_client_app
from fedcompass.deployment.site import forwarder
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.deployment.site.site_worker import SiteWorker
from fedcompass.deployment.site.worker_socket import listen_at
from fedcompass.deployment.wire.arrays import decode_arrays
from fedcompass.deployment.wire.messages import query_facts
from fedcompass.errors import WorkerLost, WorkerRefused

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_client.py"


@pytest.fixture(autouse=True)
def _in_a_flower_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 7)


@pytest.fixture
def worker() -> Iterator[Path]:
    """The socket of a worker that serves."""
    with TemporaryDirectory(prefix="fc") as folder:
        serving = SiteWorker(app_with(CountingTrainer()), SITE)
        with listen_at(Path(folder) / "s") as listener:
            thread = threading.Thread(target=serving.serve, args=(listener,))
            thread.start()
            yield Path(folder) / "s"
            serving.stop()
            thread.join()


def asked(app: ClientApp, content: RecordDict, kind: str, **node: str) -> Message:
    context = Context(
        run_id=1, node_id=7, node_config=dict(node), state=RecordDict(), run_config={}
    )
    return app(Message(content, dst_node_id=7, message_type=kind), context)


def task(steps: int = 5) -> RecordDict:
    config = ConfigRecord(dict(order(steps=steps)))
    return RecordDict({"arrays": record_of(start_arrays()), "config": config})


def test_our_client_app_answers_a_query_from_its_worker(worker: Path) -> None:
    question = RecordDict({"config": ConfigRecord(dict(query_facts("r")))})
    reply = asked(client_app.app, question, "query", worker=str(worker))
    assert facts_of(reply.content)["site"] == "here"
    assert facts_of(reply.content)["samples"] == 20


def test_our_client_app_has_its_worker_train(worker: Path) -> None:
    content = asked(client_app.app, task(5), "train", worker=str(worker)).content
    metrics = content.metric_records["metrics"]
    assert {key: metrics[key] for key in ("steps_done", "num-examples")} == {
        "steps_done": 5,
        "num-examples": 20,
    }
    assert {"seconds", "loss"} < set(metrics)
    assert dict(content.config_records["config"]) == {"task": 1, "version": 7}
    layout, start = start_state()
    expected = SiteRounds(linear(), CountingTrainer(), SITE).run(start, steps=5, task=1).end
    assert torch.equal(decode_arrays(arrays_of(content), layout).trainable, expected.trainable)


def test_what_went_wrong_is_a_reply_of_one_line(worker: Path) -> None:
    reply = asked(client_app.app, task(0), "train", worker=str(worker))
    assert reply.has_error()
    assert reply.error.reason == (
        "WorkerRefused: site here: task 1 asks for 0 steps; a task has at least 1"
    )


def test_an_errors_text_leaves_the_site_as_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object) -> None:
        raise WorkerRefused("row 7 of patients.csv:\n" + "\x1b[31mtext\n" * 1000)

    monkeypatch.setattr(forwarder, "train", train)
    reason = asked(client_app.app, task(), "train", worker="/nowhere").error.reason
    assert reason is not None
    assert len(reason) == 300
    assert reason.isprintable()
    assert reason.startswith("WorkerRefused: row 7 of patients.csv: [31mtext")


@pytest.mark.parametrize(
    ("told", "leaves"),
    [
        ("/home/ann/site/app.py:7 in trainer: KeyError: 'x'", "app.py:7 in trainer: KeyError: 'x'"),
        ("no worker at /srv/s/worker.sock, after 60 s", "no worker at worker.sock, after 60 s"),
        ("[Errno 2] No such file: '/data/my ward/a.csv'", "[Errno 2] No such file: 'a.csv'"),
        ("(/a/b/c.npy) and ~/x/y.csv", "(c.npy) and y.csv"),
        (
            "see https://example.org/a/b, 3/4 of app/x.py",
            "see https://example.org/a/b, 3/4 of app/x.py",
        ),
    ],
)
def test_an_errors_text_names_files_without_the_sites_folders(
    monkeypatch: pytest.MonkeyPatch, told: str, leaves: str
) -> None:
    def train(*_: object) -> None:
        raise WorkerRefused(told)

    monkeypatch.setattr(forwarder, "train", train)
    reason = asked(client_app.app, task(), "train", worker="/nowhere").error.reason
    assert reason == f"WorkerRefused: {leaves}"


def test_a_worker_that_is_away_is_told_without_the_sites_folders(tmp_path: Path) -> None:
    (tmp_path / "north ward").mkdir()
    with pytest.raises(WorkerLost) as caught:
        forwarder.query(tmp_path / "north ward" / "worker.sock", patience=0.0)
    assert "no worker answers at worker.sock, after 0 s" in str(caught.value)
    assert "ward" not in str(caught.value)


def test_a_node_without_a_worker_says_how_to_name_one() -> None:
    reply = asked(client_app.app, task(), "train")
    assert reply.has_error()
    assert "this node's settings have no 'worker'" in str(reply.error.reason)


def test_an_ordinary_client_app_joins_by_honouring_steps() -> None:
    began = perf_counter()
    content = asked(ordinary, task(7), "train").content
    took = perf_counter() - began
    facts = facts_of(content)
    assert facts["steps_done"] == 7
    assert facts["num-examples"] == 500
    assert isinstance(facts["seconds"], float)
    assert 0 < facts["seconds"] <= took
    layout, start = start_state()
    end = decode_arrays(arrays_of(content), layout)  # our own reader takes Flower's arrays
    assert not torch.equal(end.trainable, start.trainable)


def test_an_ordinary_client_app_needs_nothing_of_ours() -> None:
    assert "import fedcompass" not in (text := EXAMPLE.read_text(encoding="utf-8"))
    assert "from fedcompass" not in text


def test_the_name_an_earlier_version_gave_our_client_app_is_still_known() -> None:
    assert load_client_app("fedcompass.deployment.client_app:app") is client_app.app
