"""A short soak, and how its faults are counted."""

from pathlib import Path

import pytest
from tests.faults.ledger import BEFORE, Ledger
from tests.faults.soak import AT_ONCE, DISK_FULL, LEAVES, soak
from tests.faults.tally import Row, markdown, put_section, read_rows


@pytest.mark.slow_faults
def test_a_minute_of_random_faults_of_all_kinds(row: Row) -> None:
    rows, words = soak(60.0, seed=1)
    row.injected = sum(kind.injected for kind in rows)
    row.accepted = sum(kind.accepted for kind in rows)
    assert row.injected >= 30
    assert row.accepted >= 10
    faults = {kind.fault for kind in rows}
    assert faults >= {LEAVES, AT_ONCE}
    assert DISK_FULL in faults or "No disk was filled" in words


def test_an_update_belongs_to_the_last_fault_before_it() -> None:
    ledger = Ledger()
    ledger.accepted = 1
    ledger.caused("kill")
    ledger.accepted = 3
    ledger.caused("cut")
    ledger.caused("kill")
    ledger.went_wrong("cut", "no reason")
    rows = {row.fault: row for row in ledger.rows([10, 11, 12, 13], {10: 1, 11: 0, 12: 2, 13: 1})}
    assert rows[BEFORE] == Row(BEFORE, injected=0, accepted=1)
    assert rows["kill"] == Row("kill", injected=2, accepted=3, lost=1, duplicated=1)
    assert rows["cut"] == Row("cut", injected=1, outcome="FAILED: no reason")


def test_a_section_of_the_page_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nIntro.\n\n## One\n\nold\n\n## Two\n\nstays\n")
    put_section(page, "One", "new\n")
    put_section(page, "Three", "more")
    expected = "# Page\n\nIntro.\n\n## One\n\nnew\n\n## Two\n\nstays\n\n## Three\n\nmore\n"
    assert page.read_text() == expected


def test_a_table_is_read_as_it_was_written() -> None:
    rows = [Row("kill", 2, 3), Row("a cut (once)", 1, outcome="FAILED: no reason")]
    assert list(read_rows(markdown(rows)).values()) == rows
