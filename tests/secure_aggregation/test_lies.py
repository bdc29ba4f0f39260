"""Members and servers that lie: the sum is right, or there is none and the liar is named."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.secure_aggregation.conversations import (
    Conversation,
    certificates,
    failed,
    opened,
    plain_sum,
    some_terms,
    vectors_for,
)

from fedcompass.errors import MessageRefused
from fedcompass.secure_aggregation.masks import self_mask
from fedcompass.secure_aggregation.messages import (
    ConfirmationsListed,
    FromMember,
    InputMasked,
    KeysAdvertised,
    KeysListed,
    MemberAborted,
    Phase,
    RoundFailed,
    Send,
    ShareDigests,
    SharesDealt,
    SharesDelivered,
    SharesRevealed,
    SurvivorsListed,
    ToMember,
)
from fedcompass.secure_aggregation.opening import _mask_private, _remove_pair_masks
from fedcompass.secure_aggregation.primitives import public_key
from fedcompass.vocabulary import ClientId

LIAR = "site-02"
Change = Callable[[FromMember], FromMember]


def flipped(text: bytes) -> bytes:
    return bytes([text[0] ^ 1]) + text[1:]


def lying(change: Change) -> Conversation:
    """Five members, four of which are enough; one lies."""
    terms = some_terms(5, threshold=4)
    return Conversation(
        terms,
        vectors_for(terms),
        change=lambda message: change(message) if message.member == LIAR else message,
    )


def reveals_wrong_share(message: FromMember) -> FromMember:
    if not isinstance(message, SharesRevealed):
        return message
    shares = message.self_shares | {"site-00": flipped(message.self_shares["site-00"])}
    return replace(message, self_shares=shares)


def test_a_wrong_share_is_noticed_named_and_not_used() -> None:
    conversation = lying(reveals_wrong_share)
    end = opened(conversation.play())
    assert end.accused == {LIAR: "revealed wrong shares of ['site-00']"}
    error = np.abs(end.values - plain_sum(conversation, end.members)).max()
    assert error <= conversation.terms.encoding.error_bound


def test_a_wrong_share_that_would_be_needed_fails_the_round_and_is_named() -> None:
    conversation = lying(reveals_wrong_share)
    conversation.silent = {"site-04": Phase.INPUTS}  # before it has confirmed anything
    end = failed(conversation.play())
    assert end.reason.startswith("3 of 5 members revealed right shares; needed: 4")
    assert end.accused == {LIAR: "revealed wrong shares of ['site-00']"}
    assert end.among == (LIAR,)


def test_both_kinds_of_share_of_one_member_are_refused_by_the_server_too() -> None:
    def both(message: FromMember) -> FromMember:
        if not isinstance(message, SharesRevealed):
            return message
        return replace(message, key_shares={"site-00": bytes(16)})

    conversation = lying(both)
    assert LIAR in opened(conversation.play()).members
    [refused] = conversation.refused
    assert refused.startswith(f"'{LIAR}' revealed self shares of ")


def deals_another_secret(conversation: Conversation, kind: str) -> Change:
    """Shares and digests of a secret that is not the published one, sealed as they should be."""

    def change(message: FromMember) -> FromMember:
        if isinstance(message, KeysAdvertised):
            round_ = conversation.members[LIAR]._round
            assert round_ is not None
            assert round_._secrets is not None
            if kind == "self":
                round_._secrets.self_seed = bytes(16)
            else:
                round_._secrets.mask_seed = bytes(16)
        return message

    return change


@pytest.mark.parametrize(("kind", "vanishes"), [("self", Phase.OVER), ("key", Phase.INPUTS)])
def test_a_dealer_of_another_secret_than_it_published_is_named_and_nothing_opens(
    kind: str, vanishes: Phase
) -> None:
    terms = some_terms(5, threshold=4)
    conversation = Conversation(terms, vectors_for(terms), silent={LIAR: vanishes})
    conversation.change = deals_another_secret(conversation, kind)
    end = failed(conversation.play())
    assert end.reason == f"'{LIAR}' dealt shares of another secret than it published"
    assert end.accused == {LIAR: "dealt shares of another secret than it published"}
    assert end.among == (LIAR,)


def spoils_sealed(message: FromMember) -> FromMember:
    if not isinstance(message, SharesDealt):
        return message
    return replace(message, sealed=message.sealed | {"site-00": flipped(message.sealed["site-00"])})


def publishes_other_digests(message: FromMember) -> FromMember:
    if not isinstance(message, SharesDealt):
        return message
    wrong = ShareDigests(self_share=bytes(32), key_share=bytes(32))
    return replace(message, digests=message.digests | {"site-00": wrong})


@pytest.mark.parametrize("change", [spoils_sealed, publishes_other_digests])
def test_a_member_with_wrong_shares_leaves_and_names_their_dealer(change: Change) -> None:
    conversation = lying(change)
    end = opened(conversation.play())
    said = "'site-00' says: the shares it dealt are not those it published"
    assert end.accused == {LIAR: said}
    assert "site-00" not in end.members
    with pytest.raises(MessageRefused, match="allowed: once, in phase inputs"):
        conversation.members["site-00"].handle(
            SurvivorsListed(context=conversation.terms.context, survivors=end.members)
        )


def test_nobody_is_accused_but_dealers() -> None:
    def accuses(message: FromMember) -> FromMember:
        if not isinstance(message, InputMasked):
            return message
        return MemberAborted(context=message.context, member=LIAR, accused="x" * 1000)

    conversation = lying(accuses)
    assert opened(conversation.play()).accused == {}
    assert len(conversation.refused[0]) < 300


def masks_wrongly(message: FromMember) -> FromMember:
    if not isinstance(message, InputMasked):
        return message
    return replace(message, words=message.words[::-1].copy())


def changes_one_word(message: FromMember) -> FromMember:
    if not isinstance(message, InputMasked):
        return message
    words = message.words.copy()
    words[3] += 1
    return replace(message, words=words)


@pytest.mark.parametrize("change", [masks_wrongly, changes_one_word])
def test_a_vector_that_is_masked_wrongly_fails_the_round_for_all(change: Change) -> None:
    conversation = lying(change)
    end = failed(conversation.play())
    assert end.reason.startswith("a mask was left over in the sum; ")
    assert end.accused == {}
    assert end.among == conversation.terms.members  # one of them, and nobody knows which


def test_who_says_that_shares_are_wrong_may_be_the_liar_itself() -> None:
    conversation = lying(spoils_sealed)
    conversation.silent = {"site-04": Phase.INPUTS}
    end = failed(conversation.play())
    assert end.reason == ("3 of 5 members sent their vectors; needed: 4. Missing: site-00, site-04")
    assert end.among == ("site-00", LIAR)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda m: replace(m, words=m.words[:-1]) if isinstance(m, InputMasked) else m,
            "the masked vector of 'site-02' is uint32[10]; allowed: uint32[11]",
        ),
        (
            lambda m: replace(m, words=m.words.astype("<u8")) if isinstance(m, InputMasked) else m,
            "the masked vector of 'site-02' is uint64[11]; allowed: uint32[11]",
        ),
        (
            lambda m: replace(m, sealed={}) if isinstance(m, SharesDealt) else m,
            "'site-02' dealt shares to []; allowed: to its neighbours ",
        ),
        (
            lambda m: replace(m, mask_key=bytes(32)) if isinstance(m, KeysAdvertised) else m,
            f"a key of 'site-02' is '{'00' * 32}'; allowed: fresh X25519 public keys",
        ),
        (
            lambda m: replace(m, mask_key=m.seal_key) if isinstance(m, KeysAdvertised) else m,
            "a key of 'site-02' is '",
        ),
        (
            lambda m: replace(m, context=bytes(32)) if isinstance(m, SharesDealt) else m,
            "SharesDealt is of another round than merge 1 of run 'run'; ",
        ),
        (
            lambda m: replace(m, member="stranger") if isinstance(m, SharesDealt) else m,
            "SharesDealt of 'stranger' came in phase shares; allowed: once, in phase shares, of ",
        ),
    ],
)
def test_a_malformed_message_is_refused_and_its_sender_counts_as_vanished(
    change: Change, line: str
) -> None:
    conversation = lying(change)
    end = opened(conversation.play())
    assert LIAR not in end.members
    assert conversation.refused[0].startswith(line)


def test_an_answer_that_comes_twice_counts_once() -> None:
    terms = some_terms(3)
    conversation = Conversation(terms, vectors_for(terms))
    heard: list[str] = []

    def again(message: FromMember) -> FromMember:
        for earlier in conversation.heard:
            with pytest.raises(MessageRefused, match="allowed: once, in phase"):
                conversation.server.handle(earlier)
            heard.append(type(earlier).__name__)
        return message

    conversation.change = again
    end = opened(conversation.play())
    assert len(heard) > 90
    bound = terms.encoding.error_bound
    assert np.abs(end.values - plain_sum(conversation, end.members)).max() <= bound


def lied_to(forge: Callable[[ToMember], ToMember], *, signed: bool = True) -> Conversation:
    """The server lies to one member of four; all are needed, and all sign."""
    terms = some_terms(4, threshold=4)
    return Conversation(
        terms,
        vectors_for(terms),
        forge=lambda to, message: forge(message) if to == LIAR else message,
        identities=certificates(terms.members) if signed else {},
    )


def _without_last(message: ToMember) -> ToMember:
    match message:
        case KeysListed():
            return replace(message, keys=message.keys[:-1])
        case _:
            return message


def _own_keys_changed(message: ToMember) -> ToMember:
    if not isinstance(message, KeysListed):
        return message
    keys = [
        replace(each, self_seed_digest=bytes(32)) if each.member == LIAR else each
        for each in message.keys
    ]
    return replace(message, keys=tuple(keys))


def _keys_of_the_server(message: ToMember) -> ToMember:
    """A server in the middle puts a key of its own in the place of a member's."""
    if not isinstance(message, KeysListed):
        return message
    first, *others = message.keys
    return replace(message, keys=(replace(first, mask_key=public_key(b"\7" * 32)), *others))


def _fewer_dealers(message: ToMember) -> ToMember:
    if not isinstance(message, SharesDelivered):
        return message
    return replace(message, dealers=message.dealers[:3])


def _a_stranger_among_dealers(message: ToMember) -> ToMember:
    if not isinstance(message, SharesDelivered):
        return message
    return replace(message, dealers=(*message.dealers, "stranger"))


def _a_share_withheld(message: ToMember) -> ToMember:
    if not isinstance(message, SharesDelivered):
        return message
    return replace(message, sealed={})


def _fewer_survivors(message: ToMember) -> ToMember:
    if not isinstance(message, SurvivorsListed):
        return message
    return replace(message, survivors=message.survivors[1:])


def _unsorted_survivors(message: ToMember) -> ToMember:
    if not isinstance(message, SurvivorsListed):
        return message
    return replace(message, survivors=message.survivors[::-1])


def _forged_confirmation(message: ToMember) -> ToMember:
    if not isinstance(message, ConfirmationsListed):
        return message
    return replace(message, signatures=message.signatures | {"site-00": bytes(64)})


def _confirmations_withheld(message: ToMember) -> ToMember:
    if not isinstance(message, ConfirmationsListed):
        return message
    return replace(message, signatures={LIAR: message.signatures[LIAR]})


def _of_another_round(message: ToMember) -> ToMember:
    return message if isinstance(message, RoundFailed) else replace(message, context=bytes(32))


@pytest.mark.parametrize(
    ("forge", "line"),
    [
        (_without_last, "the members with keys are 3 members; allowed: 4 or more."),
        (_own_keys_changed, "the listed keys of 'site-02' are not the ones it sent"),
        (_keys_of_the_server, "the keys of 'site-00' are not signed by it"),
        (_fewer_dealers, "the dealers of shares are 3 members; allowed: 4 or more."),
        (_a_stranger_among_dealers, "the dealers of shares are ['site-00', "),
        (_a_share_withheld, "'site-02' got shares of []; allowed: of its neighbours"),
        (_fewer_survivors, "the survivors are 3 members; allowed: 4 or more."),
        (_unsorted_survivors, "the survivors are ['site-03', "),
        (_forged_confirmation, "'site-00' did not confirm the survivors that we were told"),
        (_confirmations_withheld, "the members that confirmed are 1 members; allowed: 4 or more."),
        (_of_another_round, "KeysListed is of another round than 'site-02' is in; "),
    ],
)
def test_a_member_that_is_lied_to_refuses_and_nothing_is_opened(
    forge: Callable[[ToMember], ToMember], line: str
) -> None:
    conversation = lied_to(forge)
    end = failed(conversation.play())
    assert "3 of 4 members" in end.reason
    assert conversation.refused[0].startswith(line)


@pytest.mark.parametrize(
    ("left_out_of", "line"),
    [
        (SharesDelivered, "'site-02' is not among the dealers, but dealt shares"),
        (SurvivorsListed, "'site-02' is not among the survivors, but sent its input"),
    ],
)
def test_a_member_that_is_left_out_of_a_list_reveals_nothing(left_out_of: type, line: str) -> None:
    terms = some_terms(5, threshold=3)
    others = tuple(name for name in terms.members if name != LIAR)

    def forge(to: ClientId, message: ToMember) -> ToMember:
        if to != LIAR or not isinstance(message, left_out_of):
            return message
        if isinstance(message, SharesDelivered):
            return replace(message, dealers=others)
        assert isinstance(message, SurvivorsListed)
        return replace(message, survivors=others)

    conversation = Conversation(terms, vectors_for(terms), forge=forge)
    opened(conversation.play())
    assert conversation.refused == [line]


def test_a_member_sends_no_vector_when_too_few_hold_its_shares() -> None:
    terms = some_terms(12, threshold=7, degree=6)

    def forge(to: ClientId, message: ToMember) -> ToMember:
        if to != LIAR or not isinstance(message, SharesDelivered):
            return message
        gone = list(message.sealed)[:4]
        return replace(
            message,
            dealers=tuple(name for name in message.dealers if name not in gone),
            sealed={name: text for name, text in message.sealed.items() if name not in gone},
            digests={name: each for name, each in message.digests.items() if name not in gone},
        )

    conversation = Conversation(terms, vectors_for(terms), forge=forge)
    assert LIAR not in opened(conversation.play()).members
    assert conversation.refused == ["3 holders of shares of 'site-02' are left; allowed: 4 or more"]


def test_a_refused_message_changes_nothing_and_the_true_one_is_still_answered() -> None:
    conversation = lied_to(lambda message: message)
    forgeries = [_without_last, _fewer_dealers, _fewer_survivors, _forged_confirmation]

    def forged_first(to: ClientId, message: ToMember) -> ToMember:
        for forge in forgeries:
            if (forged := forge(message)) is not message:
                with pytest.raises(MessageRefused):
                    conversation.members[to].handle(forged)
        return message

    conversation.forge = forged_first
    opened(conversation.play())


def test_two_stories_about_who_survived_open_nothing() -> None:
    """The server tells one half that a member is in the sum and the other half that it is not."""
    terms = some_terms(5, threshold=3)
    others = tuple(name for name in terms.members if name != "site-00")

    def forge(to: ClientId, message: ToMember) -> ToMember:
        if isinstance(message, SurvivorsListed) and to in ("site-03", "site-04"):
            return replace(message, survivors=others)
        return message

    conversation = Conversation(
        terms, vectors_for(terms), forge=forge, identities=certificates(terms.members)
    )
    failed(conversation.play())
    assert not [message for message in conversation.heard if isinstance(message, SharesRevealed)]
    assert "did not confirm the survivors that we were told" in conversation.refused[0]


def test_different_keys_told_to_two_members_open_nothing_even_without_signatures() -> None:
    end = failed(lied_to(_keys_of_the_server, signed=False).play())
    assert "needed: 4" in end.reason


def test_a_vanished_members_late_vector_stays_hidden_by_its_own_mask() -> None:
    """The server learns its key from shares, and removes all its pair masks; one mask is left."""
    terms = some_terms(5, threshold=4, length=1000)
    vectors = {name: np.zeros(1000, dtype=np.float32) for name in terms.members}
    late: list[FromMember] = []

    def held_back(message: FromMember) -> FromMember:
        if isinstance(message, InputMasked) and message.member == LIAR:
            late.append(message)
        return message

    conversation = Conversation(terms, vectors, change=held_back, silent={LIAR: Phase.INPUTS})
    opened(conversation.play())
    with pytest.raises(MessageRefused, match="InputMasked of 'site-02' came in phase over"):
        conversation.server.handle(late[0])
    roster = conversation.server._known_roster
    key_shares = {
        message.member: message.key_shares
        for message in conversation.heard
        if isinstance(message, SharesRevealed)
    }
    private = _mask_private(roster, LIAR, key_shares)
    [masked] = [message.words.copy() for message in late if isinstance(message, InputMasked)]
    others = {name: b"" for name in terms.members if name != LIAR}
    masked = -masked  # so that the masks of the vanished side are those of its neighbours
    _remove_pair_masks(roster, masked, LIAR, private, others)
    assert np.count_nonzero(masked) > 990
    held = conversation.members[LIAR]._round
    assert held is not None
    assert held._secrets is not None
    own = self_mask(held._secrets.self_seed, roster.id, LIAR, masked)
    assert not np.any(masked + own)  # that mask alone was left


def test_the_server_tells_everybody_that_is_there_when_a_round_has_failed() -> None:
    conversation = lying(masks_wrongly)
    end = failed(conversation.play())
    told = [send.to for send in conversation.told if isinstance(send, Send) and send.message is end]
    assert told == list(conversation.terms.members)
    for member in conversation.members.values():
        assert member._round is not None
        assert member._round._secrets is None
