"""The demo's app: short, and its sites share the data out and keep their pace."""

import re
from pathlib import Path

import fedcompass.deployment
from fedcompass.deployment.app.app_file import load_app
from fedcompass.deployment.app.trainer import Site
from fedcompass.deployment.site.local_round import SiteRounds

DEMO = Path(fedcompass.deployment.__file__).with_name("demo_app.py")


def test_the_demos_app_is_as_short_as_promised() -> None:
    code = re.sub(r'""".*?"""', "", DEMO.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


def test_the_demos_sites_share_the_data_out_and_keep_their_pace() -> None:
    app = load_app(DEMO)
    test_set = app.test_set()
    assert test_set is not None
    sites = [
        Site(f"s{number}", settings={"sites": 5, "number": number, "seconds_per_step": 0.03})
        for number in range(5)
    ]
    trainers = [app.trainer(site) for site in sites]
    assert sum(trainer.sample_count() for trainer in trainers) == 10_000
    rounds = SiteRounds(app.model(), trainers[0], sites[0])
    done = rounds.run(rounds.layout.state_of(app.model()), steps=10, task=1)
    assert done.seconds >= 0.3
    assert done.loss < 3
