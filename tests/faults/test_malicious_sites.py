"""Sites that answer nonsense, over the real wire: refused, told why, and kept out."""

from collections.abc import Callable

from tests.faults.loopback import Loopback
from tests.faults.tally import Row
from tests.faults.toy_federation import ToySites

REASONS = {
    "nan": "not-finite",
    "ten_times_the_bytes": "wrong-layout",
    "half_the_bytes": "wrong-layout",
    "a_billion_steps": "wrong-steps",
}


def test_sites_that_answer_nan_too_many_bytes_too_few_and_a_billion_steps(row: Row) -> None:
    liars = {lie.replace("_", "-"): lie for lie in REASONS}
    with ToySites(
        {"honest": 0.05, **dict.fromkeys(liars, 0.0)},
        liars=liars,
        strategy={"name": "fedasync", "steps": 5},
    ) as federation:
        federation.start()
        for site, lie in liars.items():
            federation.until(f"{site} is kept out", kept_out(federation, site))
            refused = federation.audit("refused", site)
            assert [line["reason"] for line in refused] == [REASONS[lie]] * 3
            assert all(line["why"] for line in refused)
            row.injected += len(refused)
        many, usual = (federation.audit("refused", s)[0] for s in ("ten-times-the-bytes", "nan"))
        assert many["bytes"] == 10 * usual["bytes"]
        federation.finish(row)
        assert federation.accepted() == federation.accepted("honest")


def kept_out(federation: Loopback, site: str) -> Callable[[], object]:
    return lambda: federation.audit("quarantined", site)
