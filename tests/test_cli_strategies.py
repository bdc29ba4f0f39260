"""The `fedcompass strategies` command, as a user sees it."""

import functools
import tomllib
import warnings

import pytest
from click.testing import Result

from fedcompass import strategies as recipes
from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app
    from fedcompass.cli.rule_in_words import rule_in_words

FEDAT = """\
fedat: clients of similar pace form tiers; each runs fedavg by itself, and
rare tiers count more

  when      everybody has answered once, unless profiling is tasks; then a
            tier has
  formula   w = Σ_m (T_{M+1-m} / T) w_m
  in words  the model becomes the mean of the tiers' models w_m, each the mean
            of its clients' models by samples; tier m (1 the fastest of M)
            weighs T_{M+1-m}, the rounds of the tier at the mirrored rank, so
            that slow tiers count more

w: the global model; Δ_i: start minus end of client i's local training, w_i
its end; p_i: its share of the samples; Q_i: its local steps; u: global
updates since it got its model.

setting               default   allowed
steps                 200       whole number >= 1
    Q: local steps of every task
tier_ratio            2.0       number >= 1
    υ: the slowest client of a tier is at most so many times slower than its
    fastest
profiling             round     round|tasks
    How paces are learned: a first round of all clients, which is merged; or
    tasks of a tenth of the steps, which are not: tiers are formed when
    clients with three quarters of the samples have answered theirs, and later
    ones are placed as they answer
"""

FORMULAS = {
    "fedavg": ["w -= Σ p_i Δ_i / Σ p_i"],
    "fedavgm": ["v = 0.9 v + Σ p_i Δ_i / Σ p_i; w -= v"],
    "fedadam": ["w -= 0.01 Adam(Σ p_i Δ_i / Σ p_i)"],
    "fedyogi": ["w -= 0.01 Yogi(Σ p_i Δ_i / Σ p_i)"],
    "fedadagrad": ["w -= 0.01 Adagrad(Σ p_i Δ_i / Σ p_i)"],
    "fedasync": ["w -= st(u) (w - w_i)", "w -= st(u) p_i Δ_i"],
    "fedbuff": ["w -= Σ st(u) Δ_i / K", "w -= Σ st(u) p_i Δ_i"],
    "fedat": ["w = Σ_m (T_{M+1-m} / T) w_m"],
    "fedcompass": ["w -= Σ st(u) p_i Δ_i"],
    "fedcompass+m": ["v = 0.9 v + Σ st(u) p_i Δ_i; w -= v"],
    "fedcompass+n": ["w -= (Σ p_i Q_i / Σ p_i) Σ st(u) p_i Δ_i / Q_i"],
    "metronome": ["w -= Σ p_i Δ_i"],
    "metronome+n": ["w -= (Σ p_i Q_i / Σ p_i) Σ p_i Δ_i / Q_i"],
}


@functools.cache
def strategies(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["strategies", *arguments], catch_exceptions=False)


def test_the_list_has_a_whole_line_for_each_in_a_pipe() -> None:
    lines = strategies().output.splitlines()
    for line, (name, summary) in zip(lines, recipes.describe().items(), strict=False):
        assert line == f"{name:<14}{summary}"
    assert lines[len(recipes.names())] == ""
    assert lines[-1] == "`fedcompass strategies NAME` explains one."


def test_the_list_names_the_pieces_and_each_strategy_explains_them_among_its_settings() -> None:
    listed = strategies().output.partition("Pieces of other papers")[2]
    pieces = [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]
    assert pieces == ["calibrated", "since_last", "staleness_window", "server.delay_limit"]
    explained = [
        line.split(maxsplit=1)[0] for line in strategies("fedavg").output.split("\n") if line
    ]
    assert set(pieces) <= set(explained)
    assert not set(pieces[:3]) & set(strategies("fedat").output.split())


def test_the_formula_of_a_strategy_with_pieces_has_them() -> None:
    chosen = [
        recipes.strategy("fedcompass", calibrated=True),
        recipes.strategy("fedcompass+n", calibrated=True),
        recipes.strategy("metronome", since_last=True),
        recipes.strategy("metronome", staleness_window=5),
        recipes.strategy("fedbuff", server={"delay_limit": 2}),
    ]
    told = [rule_in_words(made).splitlines() for made in chosen]
    formulas = [
        next(line.split(maxsplit=1)[1] for line in lines if line.startswith("  formula"))
        for lines in told
    ]
    assert formulas == [
        "w -= Σ st(u) p_i (Δ_i - h_i + h)",
        "w -= (Σ p_i Q_i / Σ p_i) Σ st(u) p_i (Δ_i / Q_i - h_i + h)",
        "w -= Σ p_i (y_i - w_i)",
        "w -= Σ p_i ū_i Δ_i",
        "w -= η Σ st(u) Δ_i / K",
    ]
    assert [lines[-1].split()[0] for lines in told] == ["h_i,", "h_i,", "y_i", "ū_i", "η"]


def test_one_is_explained_in_words_that_fit_a_terminal() -> None:
    assert strategies("fedat").output.startswith(FEDAT)


@pytest.mark.parametrize("name", recipes.names())
def test_the_formula_is_the_strategys_own(name: str) -> None:
    lines = strategies(name).output.splitlines()
    told = [line.split(maxsplit=1)[1] for line in lines if line.startswith("  formula")]
    assert told == FORMULAS[name]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", recipes.names())
def test_every_setting_is_listed_with_its_default(name: str) -> None:
    output = strategies(name).output
    table = output[output.index("setting  ") : output.index("An experiment fills in")]
    rows = [line.split() for line in table.splitlines()[1:] if line and not line.startswith(" ")]
    listed = {row[0]: row[1] for row in rows}
    assert {key.partition(".")[0] for key in listed} == set(recipes.known_keys(name))
    assert all(len(row) >= 3 for row in rows)  # what is allowed is always said
    chosen = recipes.strategy(name)
    assert listed["server.optimizer"] == chosen.aggregation.server.optimizer
    assert listed["guard.max_norm"] == "unset"
    assert listed["min_clients"] == "1"


@pytest.mark.parametrize(("name", "least"), [("fedcompass", 40), ("metronome", 20)])
def test_what_an_experiment_fills_in_is_told_as_it_is(name: str, least: int) -> None:
    told = " ".join(strategies(name).output.split())
    assert (
        Experiment(data={"name": "mnist"}, strategy={"name": name}).strategy["min_steps"] == least
    )
    assert f"(mnist with 5: min_steps={least}, max_steps=200, latest=1.2)" in told
    assert ("fedcompass run --strategy fedcompass --profile as-run" in told) == (
        name == "fedcompass"
    )


def test_meanings_come_from_descriptions_and_from_the_text_below_a_field() -> None:
    output = strategies("fedbuff").output
    assert "buffer_size           10          whole number >= 1\n    K: answers per" in output
    assert "staleness.alpha       1.0         number > 0 and <= 1\n    factor of a" in output
    assert "variant               own         own|share\n" in output
    assert "server.beta1          unset       number >= 0 and < 1, or unset\n" in output
    assert "pace.overhead_aware   false       true|false\n" in output


@pytest.mark.parametrize("name", recipes.names())
def test_the_snippet_pasted_into_an_experiment_gives_the_defaults(name: str) -> None:
    output = strategies(name).output
    snippet = tomllib.loads(output[output.index("[strategy]") :])
    experiment = Experiment(**snippet)
    defaults = recipes.strategy(name, min_clients=experiment.fleet.clients)
    assert experiment.chosen_strategy() == defaults


def test_what_an_experiment_fills_in_is_told() -> None:
    text = " ".join(strategies("fedbuff").output.split())
    assert "(mnist with 5: steps=200, buffer_size=3, variant=share); with profile=" in text


def test_an_unknown_name_is_one_line_with_the_known_ones() -> None:
    with pytest.raises(
        SettingsError, match=r"strategy is 'fedsgd' .*; allowed: fedavg, .*fedcompass"
    ):
        strategies("fedsgd")
