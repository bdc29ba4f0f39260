"""Secure rounds over the wire: sites that vanish, lie or come back, and a server that lies.

Every site has its own certificate, its own folder and one update of its own in it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import grpc
import numpy as np
import pytest
from tests.deployment.wire.loopback_wire import (
    Papers,
    Server,
    Site,
    attending,
    play,
    played,
    serving,
    until,
    write,
)

from fedcompass.deployment.wire.connections import SERVICE, open_channel
from fedcompass.deployment.wire.kept_updates import KeptUpdates, write_update
from fedcompass.deployment.wire.site_signer import CertificateSigner
from fedcompass.deployment.wire.sum_member import SumMember
from fedcompass.deployment.wire.sum_parts import (
    Begin,
    lacking,
    parts_of,
    read_begin,
    read_lacking,
    read_whole,
)
from fedcompass.deployment.wire.sum_rounds import RoundResult, SumRound
from fedcompass.errors import MessageRefused, WireError
from fedcompass.secure_aggregation.messages import (
    ConfirmationsListed,
    FromMember,
    InputMasked,
    KeysListed,
    RoundFailed,
    SharesDealt,
    SharesDelivered,
    SharesRevealed,
    SumOpened,
    SurvivorsListed,
)
from fedcompass.secure_aggregation.terms import Terms, terms_for
from fedcompass.secure_aggregation.vectors import WaitingUpdate

NAMES = ("east", "north", "south", "up", "west")
LENGTH = 300_000  # masked vectors of more than one piece
WEIGHT = 0.2


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("five"), *NAMES)


def update_of(name: str, task: int = 1) -> WaitingUpdate:
    draws = np.random.default_rng([NAMES.index(name), task]).uniform(-1, 1, LENGTH)
    values = draws.astype(np.float32)
    return WaitingUpdate(trainable=values[:-100], averaged=values[-100:])


def terms(merge: int = 1, length: int = LENGTH) -> Terms:
    return terms_for("trial", merge, NAMES, length, clip=1.0)


def begins(merge: int = 1, tasks: tuple[int, ...] = (1,)) -> dict[str, Begin]:
    asked = dict.fromkeys(tasks, (WEIGHT, WEIGHT))
    return {name: Begin(terms(merge), asked, None) for name in NAMES}


class Federation:
    """A server and five sites, each with an update of task 1."""

    def __init__(self, server: Server, sites: Mapping[str, Site]) -> None:
        self.server, self.sites = server, sites

    def kept(self, name: str) -> KeptUpdates:
        return self.sites[name].link._kept

    def member(self, name: str) -> SumMember:
        return self.sites[name].link._member

    def keep(self, name: str, task: int, folder: Path) -> None:
        trained = folder / f"{name}-{task}.trained"
        write_update(trained, update_of(name, task))
        self.kept(name).keep("trial", task, trained)

    async def sum(self, merge: int = 1, seconds: float = 60.0, **asked: Any) -> RoundResult:
        return await self.server.service.sum(begins(merge, **asked), seconds)


@asynccontextmanager
async def federation(papers: Papers, folder: Path) -> AsyncIterator[Federation]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(papers, folder / "server"))
        sites = {
            name: await stack.enter_async_context(
                attending(papers, name, folder / name, server.address)
            )
            for name in NAMES
        }
        made = Federation(server, sites)
        for name in NAMES:
            made.keep(name, 1, folder)
        await until(lambda: all(site.link.name for site in sites.values()))
        try:
            yield made
        except AssertionError as error:
            told = {name: site.notices for name, site in sites.items()}
            error.add_note(f"notices of the server: {server.notices}; of the sites: {told}")
            raise


def assert_sum_of(result: RoundResult, names: tuple[str, ...], task: int = 1) -> None:
    assert isinstance(result.end, SumOpened), result.end
    assert result.end.members == names
    expected = np.zeros(LENGTH)
    for name in names:
        update = update_of(name, task)
        whole = np.concatenate([update.trainable, update.averaged])
        expected += WEIGHT * whole.astype(np.float64)
    assert np.abs(result.end.values - expected).max() <= terms().encoding.error_bound


def hook(member: SumMember, change: Callable[[Any, list[FromMember]], list[FromMember]]) -> None:
    """Let a member's answers to the machine's messages go through a function first."""
    machine = member._member
    usual = machine.handle

    def handle(message: Any) -> list[FromMember]:
        return change(message, usual(message))

    machine.handle = handle  # type: ignore[method-assign]


def lying(kind: type, change: Callable[[Any], dict[str, Any]]) -> Any:
    """A hook that changes some fields of the answers of one kind."""

    def lie(message: Any, answers: list[FromMember]) -> list[FromMember]:
        return [replace(a, **change(a)) if isinstance(a, kind) else a for a in answers]

    return lie


def killed(begin: Begin) -> Any:
    """What a site that dies before it has sent its keys says."""
    raise WireError("killed")


@played
async def test_five_sites_open_their_sum_and_spend_their_updates(
    five: Papers, tmp_path: Path
) -> None:
    async with federation(five, tmp_path) as made:
        result = await made.sum()
        assert_sum_of(result, NAMES)
        assert result.lost == []
        assert 5 * 4 * LENGTH < result.received < 5 * 4 * LENGTH + 100_000
        await until(lambda: all(made.kept(n).update("trial", 1) is None for n in NAMES))
        assert not list(tmp_path.glob("*/kept/*.npz"))


@pytest.mark.parametrize(
    ("dies_at", "in_sum"),
    [
        (None, NAMES[1:]),
        (KeysListed, NAMES[1:]),
        (SharesDelivered, NAMES[1:]),
        (SurvivorsListed, NAMES),
        (ConfirmationsListed, NAMES),
    ],
)
def test_a_site_may_die_in_any_phase(
    dies_at: type | None, in_sum: tuple[str, ...], five: Papers, tmp_path: Path
) -> None:
    def die(message: Any, answers: list[FromMember]) -> list[FromMember]:
        if isinstance(message, dies_at or ()):
            raise WireError("killed")
        return answers

    async def scene() -> None:
        async with federation(five, tmp_path) as made:
            if dies_at is None:
                made.member("east")._begun = killed  # type: ignore[method-assign]
            hook(made.member("east"), die)
            result = await made.sum()
            assert_sum_of(result, in_sum)
            kept = made.kept("east").update("trial", 1)
            assert kept is not None  # it has revealed nothing
            assert made.kept("west").update("trial", 1) is None

    play(scene())


@played
async def test_a_site_that_leaves_before_the_server_sees_its_message_sent_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, five: Papers, tmp_path: Path
) -> None:
    usual = SumRound._send

    async def late(self: SumRound, context: Any, message: bytes) -> None:
        await usual(self, context, message)
        await asyncio.sleep(0.3)

    monkeypatch.setattr(SumRound, "_send", late)
    async with federation(five, tmp_path) as made:
        made.member("east")._begun = killed  # type: ignore[method-assign]
        assert_sum_of(await made.sum(seconds=1000.0), NAMES[1:])


@played
async def test_a_site_says_why_it_left_a_round_whatever_it_was(
    five: Papers, tmp_path: Path
) -> None:
    def broken(begin: Begin) -> Any:
        raise RuntimeError("a thing that nobody thought of")

    async with federation(five, tmp_path) as made:
        made.member("east")._begun = broken  # type: ignore[method-assign]
        assert_sum_of(await made.sum(), NAMES[1:])
        told = "left a sum: RuntimeError: a thing that nobody thought of"
        await until(lambda: told in made.sites["east"].notices)


@played
async def test_what_a_round_left_out_is_summed_in_the_next(five: Papers, tmp_path: Path) -> None:
    async with federation(five, tmp_path) as made:
        usual = made.member("east")._begun
        made.member("east")._begun = killed  # type: ignore[method-assign]
        assert_sum_of(await made.sum(), NAMES[1:])
        made.member("east")._begun = usual  # type: ignore[method-assign]
        for name in NAMES[1:]:
            made.keep(name, 2, tmp_path)
        asked = {
            name: Begin(terms(2), {1 if name == "east" else 2: (WEIGHT, WEIGHT)}, None)
            for name in NAMES
        }
        result = await made.server.service.sum(asked, 60.0)
        assert isinstance(result.end, SumOpened)
        assert result.end.members == NAMES


@played
async def test_with_two_of_five_nothing_is_opened_and_the_updates_stay(
    five: Papers, tmp_path: Path
) -> None:
    async with federation(five, tmp_path) as made:
        for name in NAMES[2:]:
            made.sites[name].link._join_sum = lambda *_: None  # type: ignore[method-assign]
        result = await made.sum(seconds=1.0)
        assert isinstance(result.end, RoundFailed)
        assert all(made.kept(name).update("trial", 1) is not None for name in NAMES)


def test_a_site_that_lies_about_the_shares_it_holds_is_named(five: Papers, tmp_path: Path) -> None:
    def lie(revealed: SharesRevealed) -> dict[str, Any]:
        return {"self_shares": {**revealed.self_shares, "north": bytes(16)}}

    async def scene() -> None:
        async with federation(five, tmp_path) as made:
            hook(made.member("east"), lying(SharesRevealed, lie))
            result = await made.sum()
            assert_sum_of(result, NAMES)
            assert result.end.accused == {"east": "revealed wrong shares of ['north']"}
            assert any("east: in merge 1" in notice for notice in made.server.notices)

    play(scene())


def test_a_site_that_deals_wrong_shares_is_named_and_no_wrong_sum_is_opened(
    five: Papers, tmp_path: Path
) -> None:
    def lie(dealt: SharesDealt) -> dict[str, Any]:
        return {"sealed": dict.fromkeys(dealt.sealed, bytes(48))}

    async def scene() -> None:
        async with federation(five, tmp_path) as made:
            hook(made.member("east"), lying(SharesDealt, lie))
            result = await made.sum()
            assert isinstance(result.end, RoundFailed)
            assert "east" in result.end.accused
            assert all(made.kept(name).update("trial", 1) is not None for name in NAMES)

    play(scene())


def test_a_false_vector_spends_the_updates_of_all_who_revealed_shares_for_its_sum(
    five: Papers, tmp_path: Path
) -> None:
    """They are lost: a second sum with them, over other members, would give single ones away."""

    def lie(masked: InputMasked) -> dict[str, Any]:
        return {"words": masked.words[::-1].copy()}

    async def scene() -> None:
        async with federation(five, tmp_path) as made:
            hook(made.member("east"), lying(InputMasked, lie))
            result = await made.sum()
            assert isinstance(result.end, RoundFailed)
            assert result.end.reason.startswith("a mask was left over in the sum")
            assert (result.accused, result.among) == ({}, list(NAMES))
            assert result.lost == [1] * 5
            await until(lambda: all(made.kept(n).update("trial", 1) is None for n in NAMES))

    play(scene())


def test_a_vector_of_another_size_names_its_sender_and_the_others_updates_stay(
    five: Papers, tmp_path: Path
) -> None:
    def lie(masked: InputMasked) -> dict[str, Any]:
        return {"words": masked.words[:-1]}

    async def scene() -> None:
        async with federation(five, tmp_path) as made:
            hook(made.member("east"), lying(InputMasked, lie))
            hook(made.member("north"), lying(InputMasked, lie))
            result = await made.sum()
            assert isinstance(result.end, RoundFailed)
            assert result.accused.keys() == {"east", "north"}
            assert result.accused["east"].startswith("the masked vector of 'east' is uint32[3000")
            assert result.among == ["east", "north"]
            assert result.lost == []
            assert any("east: in merge 1" in notice for notice in made.server.notices)
            assert all(made.kept(n).update("trial", 1) is not None for n in NAMES)

    play(scene())


def test_a_site_that_is_too_slow_for_a_phase_is_not_accused(five: Papers, tmp_path: Path) -> None:
    async def scene() -> None:
        async with federation(five, tmp_path) as made:
            usual = made.member("east")._answers

            def slow(raw: bytes, begin: Begin) -> list[FromMember]:
                sleep(3.0)
                return usual(raw, begin)

            made.member("east")._answers = slow  # type: ignore[method-assign]
            result = await made.sum(seconds=1.5)
            assert_sum_of(result, NAMES[1:])
            assert result.accused == {}

    play(scene())


@played
async def test_an_update_that_was_revealed_is_never_offered_again(
    five: Papers, tmp_path: Path
) -> None:
    async with federation(five, tmp_path) as made:
        result = await made.sum()
        assert isinstance(result.end, SumOpened)
        revealed = result.end.members  # all five, unless a connection broke
        await until(lambda: all(made.kept(n).update("trial", 1) is None for n in revealed))
        again = await made.sum(merge=2)
        assert isinstance(again.end, RoundFailed)
        assert again.lost == [1] * len(revealed)
        with pytest.raises(WireError, match="was in a sum; it is not offered again"):
            made.keep(revealed[0], 1, tmp_path)


def test_a_restart_ends_a_sites_round_and_the_round_is_not_begun_again(
    five: Papers, tmp_path: Path
) -> None:
    kept = KeptUpdates(tmp_path / "kept")
    write_update(tmp_path / "trained", update_of("east"))
    kept.keep("trial", 1, tmp_path / "trained")
    begin = begins()["east"]
    SumMember("east", five.identity("east"), kept)._begun(begin)
    after = SumMember("east", five.identity("east"), KeptUpdates(tmp_path / "kept"))
    with pytest.raises(MessageRefused, match="was asked to begin merge 1 of run 'trial'"):
        after._begun(begin)
    assert not isinstance(after._begun(begins(merge=2)["east"]), bytes)  # a new one is new


def test_nothing_of_a_rounds_secrets_is_on_a_sites_disk(five: Papers, tmp_path: Path) -> None:
    kept = KeptUpdates(tmp_path / "kept")
    write_update(tmp_path / "trained", update_of("east"))
    kept.keep("trial", 1, tmp_path / "trained")
    SumMember("east", five.identity("east"), kept)._begun(begins()["east"])
    assert (tmp_path / "kept" / "rounds.json").read_text() == (
        '{"rounds": {"last_merges": {"trial": 1}}, "spent": []}'
    )


def test_a_site_that_was_not_asked_cannot_call(five: Papers, tmp_path: Path) -> None:
    async def scene() -> grpc.StatusCode:
        async with (
            serving(five, tmp_path / "server") as server,
            open_channel(server.address, five.identity("east")) as channel,
        ):
            call = channel.stream_stream(f"/{SERVICE}/Sum")()
            for part in parts_of(b"x" * 22):
                await write(call, part)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call.read()
            code: grpc.StatusCode = raised.value.code()
            return code

    assert play(scene()) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("made_up", ["of another CA", "of another site", "expired", "a server's"])
def test_a_certificate_that_the_server_makes_up_is_not_believed(
    made_up: str, five: Papers, tmp_path: Path
) -> None:
    signer = CertificateSigner(five.identity("east"))
    match made_up:
        case "of another CA":
            path = Papers(tmp_path / "foreign", "ghost").identity("ghost").certificate
        case "of another site":
            path = five.identity("west").certificate
        case "expired":
            path = Papers(tmp_path / "own").certify("ghost", days=-1).certificate
        case _:
            path = five.server.certificate
    with pytest.raises(MessageRefused, match="the certificate of 'ghost' is not one of"):
        signer.learn({"ghost": path.read_text()})
    with pytest.raises(MessageRefused):
        signer.learn({"ghost": "nonsense"})


def test_a_signature_is_believed_of_its_own_site_only(five: Papers) -> None:
    east, west = (CertificateSigner(five.identity(name)) for name in ("east", "west"))
    west.learn({name: five.identity(name).certificate.read_text() for name in ("east", "up")})
    signature = east.sign(b"text")
    assert west.verify("east", b"text", signature)
    assert not west.verify("up", b"text", signature)
    assert not west.verify("east", b"another", signature)
    assert not west.verify("nobody", b"text", signature)


def test_old_updates_are_dropped(tmp_path: Path) -> None:
    kept = KeptUpdates(tmp_path / "kept")
    for task in range(1, 20):
        write_update(tmp_path / "trained", update_of("east"))
        kept.keep("trial", task, tmp_path / "trained")
    assert kept.update("trial", 1) is None
    assert kept.update("trial", 19) is not None
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 16


def test_what_is_no_round_is_refused_in_one_line() -> None:
    for raw in (b"", b"{}", b"[" * 9000, b'{"terms": {}, "tasks": {}, "max_norm": null}'):
        with pytest.raises(WireError, match="the server's round cannot be read"):
            read_begin(raw)
    assert read_begin(begins()["east"].to_bytes()) == begins()["east"]


def test_what_a_member_lacks_is_numbers_or_another_message() -> None:
    assert read_lacking(lacking([3, 4])) == [3, 4]
    for raw in (b'{"lacks": 3}', b'{"lacks": [1e999]}', b'{"lacks":' + b"[" * 9000):
        assert read_lacking(raw) is None


def test_a_message_longer_than_allowed_is_refused() -> None:
    parts = list(parts_of(bytes(100)))

    async def read() -> bytes:
        return parts.pop(0)

    with pytest.raises(WireError, match="a message of a sum has 100 bytes; allowed: 99"):
        asyncio.run(read_whole(read, 99))
