"""The page about privacy: its commands, its site.toml and what it says a site prints."""

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from fedcompass.cli.setting_options import assigned
from fedcompass.deployment.app.trainer import Site
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.site.site_budget import SitePrivacySettings
from fedcompass.deployment.site.site_folder import SiteSettings
from fedcompass.errors import BudgetSpent
from fedcompass.experiment import Experiment

TEXT = (Path(__file__).parents[1] / "docs" / "privacy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
RUNS = [
    line
    for kind, body in BLOCKS
    if kind == "bash"
    for line in body.splitlines()
    if line.startswith("fedcompass run ") and "privacy." in line
]


@pytest.mark.parametrize("line", RUNS)
def test_a_command_of_the_page_gives_the_clients_their_budgets(line: str) -> None:
    words = shlex.split(line, comments=True)
    given = [after for word, after in pairwise(words) if word == "--set"]
    assert len(words) == 2 + 2 * len(given)
    experiment = Experiment(**assigned(given))
    assert experiment.privacy.is_on
    experiment.privacy.check_clients(experiment.fleet.clients)


def test_the_page_shows_one_budget_for_all_and_one_for_each() -> None:
    assert len(RUNS) == 3
    assert any("[" in line for line in RUNS)


def test_the_pages_deployment_toml_turns_secure_sums_on() -> None:
    [text] = [b for kind, b in BLOCKS if kind == "toml" and b.startswith("# deployment.toml")]
    shown = tomllib.loads(text)["federation"]
    assert FederationSettings(max_updates=9, min_clients=3, **shown).secure.enabled


def test_the_pages_site_toml_is_a_sites_settings() -> None:
    [text] = [body for kind, body in BLOCKS if kind == "toml" and body.startswith("# site.toml")]
    record = tomllib.loads(text)
    site = SiteSettings(name="heart", server="127.0.0.1:9", **record)
    settings = SitePrivacySettings(**site.settings["privacy"])
    assert (settings.epsilon, settings.delta, settings.clip, settings.noise) == (4.0, 1e-5, 1, 2)
    assert site.data is not None
    place = settings.place(Site("heart", Path(site.data)))
    assert place == Path("/srv/heart/privacy-account.json")


def test_an_account_given_by_a_relative_path_is_beside_the_data() -> None:
    settings = SitePrivacySettings(epsilon=1.0, account=Path("kept/account.json"))
    place = settings.place(Site("heart", Path("/srv/heart")))
    assert place == Path("/srv/heart/kept/account.json")


def test_the_page_quotes_what_a_site_prints_when_it_leaves() -> None:
    assert f"site heart has left: {BudgetSpent(3.99, 4.0)}\n" in TEXT
