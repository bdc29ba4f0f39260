"""Drawing fleets."""

import sys
from pathlib import Path

import pytest

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.report.figures.setup import draw_fleet
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet

FLEET = {"equal": Fleet(FleetSettings(speed="homogeneous"), seed=0)}


def test_the_papers_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    fleets = {
        "normal": Fleet(FleetSettings(clients=50, speed="normal"), seed=0),
        "exponential": Fleet(FleetSettings(clients=50), seed=0),
    }
    path = tmp_path / "figures" / "fleets.png"
    draw_fleet(fleets, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_one_fleet_has_its_title_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    draw_fleet(FLEET, tmp_path / "one.svg")
    assert "equal" in (tmp_path / "one.svg").read_text().replace("<!--", "")
    with pytest.raises(SettingsError, match=r"fleet\.doc has no ending .* allowed: .*\.png"):
        draw_fleet(FLEET, tmp_path / "fleet.doc")


def test_without_matplotlib_the_install_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install -c constraints.txt '\.\[plot\]'"):
        draw_fleet(FLEET, tmp_path / "fleet.png")
