"""Drawing fleets."""

import sys
from pathlib import Path

import pytest

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.report.figures.setup import draw_fleet
from fedcompass.simulation.fleet import Fleet, FleetSettings


def test_the_papers_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    fleets = {
        "normal": Fleet(FleetSettings(clients=50, speed="normal"), seed=0),
        "exponential": Fleet(FleetSettings(clients=50), seed=0),
    }
    path = draw_fleet(fleets, tmp_path / "figures" / "fleets.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_one_fleet_or_bare_paces_will_do(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    equal = Fleet(FleetSettings(speed="homogeneous"), seed=0)
    assert "homogeneous" in draw_fleet(equal, tmp_path / "one.svg").read_text().replace("<!--", "")
    assert draw_fleet([0.1, 0.2], str(tmp_path / "paces.pdf")).stat().st_size > 0


def test_nothing_to_draw_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    with pytest.raises(SettingsError, match="there is no client to draw"):
        draw_fleet([], tmp_path / "none.png")
    with pytest.raises(SettingsError, match=r"fleet\.doc has no ending .* allowed: .*\.png"):
        draw_fleet([0.1], tmp_path / "fleet.doc")


def test_without_matplotlib_the_install_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedcompass\[plot\]'"):
        draw_fleet([0.1], tmp_path / "fleet.png")
