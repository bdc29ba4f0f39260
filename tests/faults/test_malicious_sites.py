"""Sites that answer nonsense, over the real wire: refused, told why, and kept out."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.deployment.exactly_once import check_exactly_once
from tests.faults.loopback import Loopback
from tests.faults.tally import Row
from tests.faults.toy_federation import ToySites

from fedcompass.cli.deploy import readmit

REASONS = {
    "nan": "not-finite",
    "ten_times_the_bytes": "wrong-layout",
    "half_the_bytes": "wrong-layout",
    "a_billion_steps": "wrong-steps",
    "huge": "unusual-norm",
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
            assert {line["reason"] for line in refused} == {REASONS[lie]}
            assert len(refused) == 3 or (lie == "huge" and len(refused) > 3)
            assert all(line["why"] for line in refused)
            row.injected += len(refused)
        many, usual = (federation.audit("refused", s)[0] for s in ("ten-times-the-bytes", "nan"))
        assert many["bytes"] == 10 * usual["bytes"]
        federation.finish(row)
        assert federation.accepted() == federation.accepted("honest")


@pytest.mark.slow_faults
def test_a_quarantine_outlasts_the_sites_absence_and_restart_and_the_servers_until_it_is_lifted(
    row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    with ToySites(
        {"honest": 0.05, "liar": 0.0},
        liars={"liar": "nan"},
        strategy={"name": "fedasync", "steps": 5},
        gone_after=1.0,
    ) as federation:
        federation.start()
        federation.until("the liar is kept out", kept_out(federation, "liar"))
        row.injected += len(federation.audit("refused", "liar"))
        federation.sites.pop("liar").stop()
        federation.until_more("left", "liar")
        federation.liars.clear()  # from now on it would be honest
        federation.start_site("liar")
        federation.until_more("joined", "liar")
        federation.until_more("merged", lines=5)
        federation.crash()
        federation.until_more("merged", lines=5)
        assert federation.accepted("liar") == 0
        assert federation.audit("readmitted") == []
        with ThreadPoolExecutor() as operator:
            readmitted = operator.submit(readmit, federation.project, "liar")
            federation.until("the command ends", readmitted.done)
            readmitted.result()
        by = federation.audit("readmitted", "liar")[0]["by"]
        assert f"liar is readmitted by {by}: it gets tasks again" in capsys.readouterr().out
        federation.until_more("accepted", "liar")
        federation.finish(row)


@pytest.mark.slow_faults
def test_an_impatient_site_does_not_use_up_max_updates(row: Row) -> None:
    patient = ["north", "south", "east"]
    with ToySites(
        {"impatient": 0.0, **dict.fromkeys(patient, 1.0)},
        strategy={"name": "fedasync", "steps": 5},
        max_updates=40,
    ) as federation:
        federation.start()
        federation.until("the run is over", lambda: federation.outcome is not None)
        row.injected = federation.accepted("impatient")
        row.accepted = federation.accepted()
        assert [line["who"] for line in federation.audit("has had its share")] == ["impatient"]
        assert row.injected <= 34 + 1
        assert sum(map(federation.accepted, patient)) >= 5
        check_exactly_once(federation.run, federation.settings, federation.twin())


def kept_out(federation: Loopback, site: str) -> Callable[[], object]:
    return lambda: federation.audit("quarantined", site)
