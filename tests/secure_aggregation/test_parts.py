"""Shares, neighbours and terms: the parts of a round, each by itself."""

import subprocess
import sys
from itertools import combinations

import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secure_aggregation.conversations import drawn, names, some_terms

from fedcompass.errors import SettingsError
from fedcompass.secure_aggregation.graph import NeighbourGraph, default_degree
from fedcompass.secure_aggregation.primitives import is_public_key, opened, sealed
from fedcompass.secure_aggregation.shares import combined, split
from fedcompass.secure_aggregation.terms import Terms, terms_for

SECRET = bytes(range(16))


def test_any_shares_up_to_the_threshold_tell_the_secret() -> None:
    shares = dict(enumerate(split(SECRET, 5, 3, drawn(1)), start=1))
    for chosen in combinations(shares, 3):
        assert combined({number: shares[number] for number in chosen}) == SECRET
    assert combined({1: shares[1], 2: shares[2]}) != SECRET


def test_shares_below_the_threshold_fit_every_secret_equally() -> None:
    one, other = (split(secret, 5, 3, drawn(1)) for secret in (SECRET, bytes(16)))
    assert one[:2] == other[:2]
    assert one[2:] != other[2:]


def test_shares_are_those_of_the_library() -> None:
    assert combined(dict(Shamir.split(3, 5, SECRET, ssss=False)[1:4])) == SECRET
    ours = list(enumerate(split(SECRET, 6, 4, drawn(2)), start=1))
    assert Shamir.combine(ours[2:], ssss=False) == SECRET


@settings(deadline=None)
@given(count=st.integers(3, 60), half=st.integers(1, 30), roster=st.binary(max_size=8))
def test_neighbours_are_mutual_and_everybody_has_as_many(
    count: int, half: int, roster: bytes
) -> None:
    degree = min(2 * half, count - 1)
    graph = NeighbourGraph(roster, names(count), degree)
    for name in names(count):
        near = graph.neighbours(name)
        assert len(near) == degree or (degree % 2 and degree == count - 1)
        assert all(name in graph.neighbours(other) for other in near)
        assert graph.holders(name) == tuple(sorted((name, *near)))
    assert graph.is_connected(names(count))


def test_who_is_whose_neighbour_depends_on_everybodys_keys() -> None:
    one, other = (NeighbourGraph(roster, names(30), 4) for roster in (b"1", b"2"))
    assert [one.neighbours(n) for n in names(30)] != [other.neighbours(n) for n in names(30)]


def test_small_groups_are_complete_and_large_ones_are_not() -> None:
    assert [default_degree(count) for count in (3, 10, 16, 20, 50, 1000)] == [
        2,
        9,
        15,
        18,
        24,
        40,
    ]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"members": ("a", "b")},
            "a secure round has 2 members; allowed: 3 or more. "
            "Let their updates wait for the next merge",
        ),
        ({"members": ("b", "a", "c")}, "members is ('b', 'a', 'c'); allowed: sorted names, "),
        ({"members": ("a", "a", "c")}, "members is ('a', 'a', 'c'); allowed: sorted names, "),
        ({"threshold": 2}, "threshold is 2; allowed: 3 to 5"),
        ({"threshold": 6}, "threshold is 6; allowed: 3 to 5"),
        ({"degree": 3}, "degree is 3; allowed: 4, or an even number from 2 up to it"),
        ({"degree": 6}, "degree is 6; allowed: 4, or an even number from 2 up to it"),
        ({"merge": -1}, "merge is -1; allowed: 0 or more"),
        ({"length": 0}, "length is 0; allowed: 1 or more"),
        ({"clip": 0.0}, "clip is 0.0; allowed: 1e-12 to 1e+12"),
    ],
)
def test_terms_that_would_protect_nobody_are_refused(changed: dict[str, object], line: str) -> None:
    usual: dict[str, object] = {
        "run": "run",
        "merge": 1,
        "members": names(5),
        "length": 7,
        "bits": 32,
        "clip": 1.0,
        "threshold": 4,
        "degree": 4,
    }
    with pytest.raises(SettingsError) as caught:
        Terms(**(usual | changed))  # type: ignore[arg-type]
    assert str(caught.value).startswith(line)


def test_fewer_than_three_get_no_usual_terms_either() -> None:
    for count in range(3):
        with pytest.raises(SettingsError, match=f"a secure round has {count} members"):
            terms_for("run", 1, names(count), 7, clip=1.0)


def test_every_term_is_part_of_the_context() -> None:
    others = [
        some_terms(6),
        some_terms(merge=2),
        some_terms(length=8),
        some_terms(bits=64),
        some_terms(threshold=3),
        some_terms(degree=2),
        terms_for("other run", 1, names(5), 7, clip=4.0),
        terms_for("run", 1, names(5), 7, clip=3.0),
    ]
    assert len({terms.context for terms in (some_terms(), *others)}) == 9


def test_a_key_that_agrees_with_everybody_on_the_same_is_none() -> None:
    assert not is_public_key(bytes(32))
    assert not is_public_key(b"\1" + bytes(31))
    assert not is_public_key(b"short")


def test_what_was_sealed_opens_with_its_key_and_unchanged_only() -> None:
    key, text = bytes(32), sealed(bytes(32), b"shares")
    assert opened(key, text) == b"shares"
    assert opened(key, text[:-1] + bytes([text[-1] ^ 1])) is None
    assert opened(bytes(31) + b"\1", text) is None
    assert opened(key, b"") is None


@pytest.mark.parametrize(
    ("module", "package"), [("cryptography", "cryptography"), ("Crypto", "pycryptodome")]
)
def test_without_its_libraries_the_extra_is_named_in_one_line(module: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None; import fedcompass.secure_aggregation.member"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stderr.splitlines()[-1] == (
        f"fedcompass.errors.MissingExtra: secure aggregation needs {package}, which is not "
        "installed. Run in its checkout: pip install -c constraints.txt '.[privacy]'"
    )
