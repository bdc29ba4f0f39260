"""Sites that answer nonsense, through real Flower: refused, told why, and kept out."""

from collections.abc import Callable

from tests.faults.loopback import Loopback
from tests.faults.tally import Row

REASONS = {
    "nan": "not-finite",
    "wrong_shapes": "wrong-layout",
    "too_many_bytes": "wrong-layout",
    "another_task": "unexpected-task",
}


def test_sites_that_answer_nan_wrong_shapes_too_many_bytes_and_anothers_task(row: Row) -> None:
    names = {name: name.replace("_", "-") for name in REASONS}
    apps = {site: f"tests.faults.malicious_apps:{name}" for name, site in names.items()}
    with Loopback(
        {"honest": 0.05, **dict.fromkeys(apps, 0.0)},
        client_apps=apps,
        strategy={"name": "fedasync", "steps": 5},
    ) as federation:
        federation.start()
        for name, site in names.items():
            federation.until(f"{site} is kept out", kept_out(federation, site))
            refused = federation.audit("refused", site)
            assert [line["reason"] for line in refused] == [REASONS[name]] * 3
            assert all(line["why"] for line in refused)
            row.injected += len(refused)
        many, usual = (federation.audit("refused", s)[0] for s in ("too-many-bytes", "nan"))
        assert many["bytes"] > 5 * usual["bytes"]
        federation.finish(row)
        assert federation.accepted() == federation.accepted("honest")


def kept_out(federation: Loopback, site: str) -> Callable[[], object]:
    return lambda: federation.audit("quarantined", site)
