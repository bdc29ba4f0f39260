"""Where a server's sums come from: an outcome is on disk before it is used, and used once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcompass.aggregation import FlatState
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.site_sums import SiteSums
from fedcompass.deployment.wire.sum_parts import Begin
from fedcompass.deployment.wire.sum_rounds import RoundResult
from fedcompass.deployment.wire.transport import NodeId
from fedcompass.errors import CheckpointError, SettingsError
from fedcompass.runs.checkpoint import load_checkpoint, save_checkpoint
from fedcompass.secure_aggregation.messages import RoundFailed, SumOpened
from fedcompass.settings.secure import SecureSettings
from fedcompass.summed_merges import Asked

ASKED: Asked = {name: {number: (0.25, 0.25)} for number, name in enumerate("abcd", start=1)}


class Sites:
    """A transport whose sites all send ones; it counts the rounds."""

    def __init__(self, connected: str = "abcd", later: str | None = None) -> None:
        self.here, self.later, self.looks = connected, later or connected, 0
        self.rounds = list[int]()
        self.fails, self.lost = False, list[int]()

    def attending(self) -> set[NodeId]:
        self.looks += 1
        here, self.here = self.here, self.later
        return set(here)

    def sum(self, begins: Mapping[str, Begin], phase_seconds: float) -> RoundResult:
        terms = next(iter(begins.values())).terms
        self.rounds.append(terms.merge)
        end: SumOpened | RoundFailed
        if self.fails:
            end = RoundFailed(context=b"", reason="2 of 4 members", accused={}, among=("a",))
        else:
            values = np.full(terms.length, 0.25 * len(begins))
            end = SumOpened(context=b"", members=terms.members, values=values, accused={})
        accused = {"a": "lies"} if self.fails else {}
        return RoundResult(end, self.lost, 10, 20, 0.5, accused)


def sums(folder: Path, transport: Sites, phase_seconds: float = 30.0) -> SiteSums:
    settings = SecureSettings(enabled=True, phase_seconds=phase_seconds)
    like = FlatState(torch.zeros(3), torch.zeros(1), torch.tensor([7]))
    made = SiteSums(settings, transport, folder, like, None)
    made.run = "trial"
    return made


def test_a_sum_has_the_models_layout_and_says_who_is_in_it(tmp_path: Path) -> None:
    transport = Sites("abc")
    opened = sums(tmp_path, transport).opened(1, ASKED)
    assert opened.sums is not None
    assert opened.sums.trainable.tolist() == [0.75] * 3
    assert opened.sums.averaged.tolist() == [0.75]
    assert opened.sums.counted.tolist() == [7]
    assert list(opened.clients) == ["a", "b", "c"]
    assert opened.notes == {"masked": {"bytes_up": 10, "bytes_down": 20, "seconds": 0.5}}


def test_a_server_that_was_killed_uses_the_sum_that_it_had_opened(tmp_path: Path) -> None:
    transport = Sites()
    first = sums(tmp_path, transport).opened(1, ASKED)
    again = sums(tmp_path, transport).opened(1, ASKED)
    assert transport.rounds == [1]
    assert first.sums is not None
    assert again.sums is not None
    assert torch.equal(again.sums.trainable, first.sums.trainable)
    assert (list(again.clients), again.notes) == (list(first.clients), first.notes)


def test_a_sum_of_other_updates_is_not_used(tmp_path: Path) -> None:
    transport = Sites()
    sums(tmp_path, transport).opened(1, ASKED)
    sums(tmp_path, transport).opened(1, {**ASKED, "d": {9: (0.25, 0.25)}})
    assert transport.rounds == [1, 2]  # and no number is used twice


@pytest.mark.parametrize("missing", ["clients", "lost", "notes"])
def test_a_saved_sum_without_one_of_its_facts_is_refused_in_one_line(
    tmp_path: Path, missing: str
) -> None:
    sums(tmp_path, Sites()).opened(1, ASKED)
    path = tmp_path / "sums" / "1.safetensors"
    saved = load_checkpoint(path)
    del saved.facts[missing]
    save_checkpoint(path, saved.tensors, saved.facts)
    with pytest.raises(CheckpointError, match=f"1.safetensors is incomplete: KeyError.'{missing}'"):
        sums(tmp_path, Sites()).opened(1, ASKED)


def test_rounds_are_counted_over_restarts_though_sums_are_dropped(tmp_path: Path) -> None:
    transport = Sites()
    for version in (1, 2):
        made = sums(tmp_path, transport)
        made.opened(version, ASKED)
        made.drop()
    assert transport.rounds == [1, 2]
    assert [path.name for path in (tmp_path / "sums").iterdir()] == ["rounds"]


def test_fewer_than_three_connected_sites_open_nothing(tmp_path: Path) -> None:
    transport = Sites("ab")
    opened = sums(tmp_path, transport, 0.2).opened(1, ASKED)
    assert (opened.sums, list(opened.clients), transport.rounds) == (None, [], [])
    assert opened.failed == "2 of 4 sites are connected; 3 or more are needed"


def test_a_site_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """Else merges would fail one after another until it counts as gone, or is back."""
    transport = Sites("ab", later="abc")
    opened = sums(tmp_path, transport).opened(1, ASKED)
    assert list(opened.clients) == ["a", "b", "c"]
    assert transport.looks == 2


def test_a_round_that_failed_says_why_and_who(tmp_path: Path) -> None:
    transport = Sites()
    transport.fails, transport.lost = True, [2]
    opened = sums(tmp_path, transport).opened(1, ASKED)
    assert opened.sums is None
    assert list(opened.lost) == [2]
    assert opened.failed == "2 of 4 members"
    assert sorted(opened.clients) == ["a", "b", "c", "d"]  # took part
    assert opened.notes["masked"]["accused"] == {"a": "lies"}
    again = sums(tmp_path, transport).opened(1, ASKED)
    assert (again.sums, list(again.lost), len(transport.rounds)) == (None, [2], 1)
    assert (again.failed, list(again.clients)) == (opened.failed, list(opened.clients))


def test_a_merge_that_is_tried_again_after_a_failed_sum_has_a_round_of_its_own(
    tmp_path: Path,
) -> None:
    """Of the same updates, where nobody has revealed any: it is another merge that is tried."""
    transport = Sites()
    transport.fails = True
    sums(tmp_path, transport).opened(1, ASKED)
    transport.fails = False
    assert sums(tmp_path, transport).opened(2, ASKED).sums is not None
    assert transport.rounds == [1, 2]


@pytest.mark.parametrize("name", ["fedasync", "fedat"])
def test_a_federation_whose_strategy_needs_single_updates_is_refused(name: str) -> None:
    settings: dict[str, Any] = {"strategy": {"name": name}, "max_updates": 3}
    with pytest.raises(SettingsError, match=r"secure\.enabled is true, but"):
        FederationSettings(**settings, secure=SecureSettings(enabled=True))
