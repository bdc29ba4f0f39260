"""Checks a finished run against its own journal: every accepted update counts exactly once."""

import json
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from tests.deployment.fake_network import INITIAL, LAYOUT, trained

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.coordinator import Coordinator
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.runs.codec import event_from_json
from fedcompass.runs.journal import read_journal
from fedcompass.runs.replay import replay
from fedcompass.scheduling.commands import StartTraining
from fedcompass.scheduling.events import UpdateArrived
from fedcompass.training.local import change_or_model


class Twin(Protocol):
    """The same federation without faults: what each task gives, computed again."""

    layout: Layout
    initial: FlatState

    def trained(self, start: FlatState, event: UpdateArrived, steps_before: int) -> FlatState: ...


class _FakeTwin:
    layout, initial = LAYOUT, INITIAL

    def trained(self, start: FlatState, event: UpdateArrived, steps_before: int) -> FlatState:
        return trained(start, event.task, event.steps_done)


def records(folder: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_journal(folder / "journal.jsonl")]


def audit(folder: Path, what: str | None = None) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [line for line in lines if what is None or line["what"] == what]


def check_exactly_once(
    folder: Path, settings: FederationSettings, twin: Twin | None = None
) -> None:
    """Nothing was lost, doubled or changed by the crashes on the way."""
    replay(folder / "journal.jsonl")
    lines = records(folder)
    accepted = [r["task"] for r in lines if r.get("event") == "UpdateArrived" and r["steps_done"]]
    merged = [t for r in lines if r.get("command") == "Commit" for _, t, _ in r["contributions"]]
    discarded = [r["task"] for r in lines if r.get("command") == "Discard"]
    summary = json.loads((folder / "summary.json").read_text())
    pending = [task for _, task, _ in summary["pending"]]
    assert len(accepted) == len(set(accepted)), "an update was accepted twice"
    assert sorted(merged + pending + discarded) == sorted(accepted), (
        "an update was lost or merged twice"
    )
    assert [line["task"] for line in audit(folder, "accepted")] == accepted
    versions = [line["version"] for line in audit(folder, "merged")]
    assert versions == list(range(1, len(versions) + 1))
    final = load_file(folder / "final.safetensors")
    model = _recomputed(lines, settings, twin := twin or _FakeTwin())
    for name, tensor in twin.layout.unflatten(model).items():
        assert torch.equal(final[name], tensor), name


def _recomputed(lines: list[dict[str, Any]], settings: FederationSettings, twin: Twin) -> FlatState:
    """The model that a server which never crashed makes of the same events."""
    coordinator = Coordinator(settings.chosen_strategy(), twin.layout, twin.initial.clone())
    starts: dict[int, tuple[FlatState, int]] = {}
    for record in lines:
        if "event" not in record:
            continue
        event = event_from_json(record)
        tensors = None
        if isinstance(event, UpdateArrived):
            start, before = starts.pop(event.task)
            end = twin.trained(start, event, before) if event.steps_done else start.clone()
            tensors = change_or_model(coordinator.payload, start, end, out=end)
        for order in coordinator.take_in_again(event, tensors):
            if isinstance(order, StartTraining):
                starts[order.task] = coordinator.start_model(order), order.steps_before
    return coordinator.model
