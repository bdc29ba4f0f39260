"""The `fedcompass plot` command: what is in the figures, and what is refused."""

import re
import warnings
from pathlib import Path

import pytest
from tests.report.figures.run_folders import accuracies, paper_run, written_run

from fedcompass.errors import FedcompassError, RunFolderError, SettingsError
from fedcompass.report.figures.style import COLOURS, ink_on, paler

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli import app

pytest.importorskip("matplotlib", reason="drawing needs the plot extra")

ROOT = Path(__file__).parents[1]
FOLD = {"command": "Commit", "at": 1.0, "version": 1, "buffers": [0]}


def plot(*arguments: str) -> str:
    """What it says on stderr; nothing is printed."""
    result = CliRunner(mix_stderr=False).invoke(app, ["plot", *arguments])
    if isinstance(result.exception, FedcompassError):
        raise result.exception
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    return result.stderr


def words(svg: Path) -> list[str]:
    """The texts of a picture: they are texts, not outlines."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(paper_run(tmp_path_factory.mktemp("runs") / "overview"))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two strategies, two seeds each."""
    root = tmp_path_factory.mktemp("compare")
    for name, stale in (("fedavg", 0), ("fedasync", 20)):
        for seed in (0, 1):
            rows = accuracies((0, 0.1), (2 + seed, 0.5), (6, 0.8))
            merge = {**FOLD, "contributions": [["a", 1, 0], ["b", 2, stale]]}
            strategy = {"name": name}
            folder = root / f"{name}-{seed}"
            written_run(folder, rows, [merge], seed=seed, strategy=strategy, target=0.8)
    return str(root)


def test_the_overview_figure_has_the_papers_numbers(overview: str, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "overview.svg"
    assert plot(overview, "-o", str(picture)) == f"picture: {picture}\n"
    text = words(picture)
    assert text.count("Q = 100") == 3
    for steps in (28, 35, 24, 40, 50, 25):
        assert f"Q = {steps}" in text
    for label in ("12:00", "22:00", "client 4", "group 2", "warm-up", "merge", "deadline"):
        assert label in text
    assert "waiting" not in text
    assert "late" not in text


def test_a_late_arrival_is_marked_and_named(tmp_path: Path) -> None:
    late = paper_run(tmp_path / "late", 1500.0, change=306 / 14)
    plot(str(late), "-o", str(tmp_path / "late.svg"))
    assert {"late", "waiting", "14:00"} <= set(words(tmp_path / "late.svg"))


def test_a_part_of_the_time_can_be_shown_and_runs_stand_on_one_axis(
    overview: str, tmp_path: Path
) -> None:
    other = paper_run(tmp_path / "short", 600.0)
    picture = tmp_path / "both.svg"
    plot(overview, str(other), "-o", str(picture), "--from", "720", "--until", "1320")
    text = words(picture)
    assert {"overview", "short", "12:00", "22:00"} <= set(text)
    assert "warm-up" not in text


def test_a_pdf_embeds_its_fonts_and_the_same_run_gives_the_same_bytes(
    overview: str, tmp_path: Path
) -> None:
    for ending in ("pdf", "svg"):
        one, two = tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"
        plot(overview, "-o", str(one))
        plot(overview, "-o", str(two))
        assert one.read_bytes() == two.read_bytes()
    assert b"/FontFile2" in (tmp_path / "one.pdf").read_bytes()
    assert b"/Type3" not in (tmp_path / "one.pdf").read_bytes()


def test_accuracy_has_a_curve_per_strategy_and_the_target(comparison: str, tmp_path: Path) -> None:
    picture = tmp_path / "accuracy.svg"
    plot(comparison, "--what", "accuracy", "-o", str(picture))
    text = words(picture)
    for label in ("fedavg", "fedasync", "target 80%", "accuracy", "time (s)", "80%"):
        assert label in text
    assert "mean ± standard deviation, 2 seeds" in text
    assert 'width="252pt"' in picture.read_text(encoding="utf-8")  # a column of 3.5 inches


def test_staleness_has_bars_and_means(comparison: str, tmp_path: Path) -> None:
    picture = tmp_path / "staleness.svg"
    plot(comparison, "--what", "staleness", "-o", str(picture), "--width", "5")
    text = words(picture)
    assert {"fedasync, mean 10.00", "fedavg, mean 0.00", "17–32", "share of updates"} <= set(text)


@pytest.mark.parametrize("what", ["partition", "fleet"])
def test_the_data_split_and_the_speeds_of_a_run_are_drawn(
    what: str, overview: str, tmp_path: Path
) -> None:
    picture = tmp_path / f"{what}.svg"
    plot(overview, "--what", what, "-o", str(picture))
    title = {"partition": "mnist-mini, class partition, seed 0", "fleet": "mean 17.4 s"}[what]
    assert title in words(picture)


def test_a_png_is_a_png(overview: str, tmp_path: Path) -> None:
    plot(overview, "-o", str(tmp_path / "x.png"), "--width", "3.5")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["RUN", "--what", "pie"], SettingsError, "--what is 'pie'; allowed: timeline, accuracy,"),
        (["RUN", "--what", "accuracy"], SettingsError, "no 'accuracy'; measured were: nothing"),
        (["RUN", "--metric", "loss"], SettingsError, "--metric goes with --what accuracy"),
        (["RUN", "--from", "9", "--until", "3"], SettingsError, "--from is 9 and --until 3"),
        (["RUN", "--from", "9000"], SettingsError, "nobody trains from 9000 s to 2040 s"),
        (["RUN", "--width", "0"], SettingsError, "--width is 0; allowed: 1.5 to 40 inches"),
        (["RUN", "--what", "fleet", "--width", "5"], SettingsError, "do not go with fleet"),
        (["CMP", "--what", "partition"], SettingsError, "draws one run, not 4; give one"),
        (["CMP", "--what", "fleet"], SettingsError, "does not say its fleet; give a simulated"),
        (["nowhere"], RunFolderError, "nowhere is not a folder"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    arguments: list[str],
    kind: type[FedcompassError],
    message: str,
    overview: str,
    comparison: str,
    tmp_path: Path,
) -> None:
    places = {"RUN": overview, "CMP": comparison}
    with pytest.raises(kind, match=re.escape(message)) as caught:
        plot(*(places.get(part, part) for part in arguments), "-o", str(tmp_path / "x.pdf"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x.pdf").exists()


def test_another_ending_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"x\.doc has no ending for a figure; allowed: \.pdf"):
        plot("nowhere", "-o", str(tmp_path / "x.doc"))


def test_a_run_that_merged_nothing_has_no_staleness(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run", [])
    with pytest.raises(SettingsError, match="nothing was merged"):
        plot(str(run), "--what", "staleness", "-o", str(tmp_path / "x.pdf"))


def test_runs_about_different_metrics_need_a_choice(tmp_path: Path) -> None:
    for metric in ("accuracy", "loss"):
        written_run(tmp_path / metric, [], evaluation={"target_metric": metric})
    with pytest.raises(SettingsError, match="the runs are about accuracy, loss; choose one with"):
        plot(str(tmp_path), "--what", "accuracy", "-o", str(tmp_path / "x.pdf"))


def test_ink_can_be_read_on_every_colour() -> None:
    assert [ink_on(colour) for colour in COLOURS] == ["white"] + ["black"] * 6
    assert paler("#000000") == "#8C8C8C"


def test_times_of_a_sweep_show_every_seed_and_count_misses(tmp_path: Path) -> None:
    picture = tmp_path / "times.svg"
    study = ("studies/unequal-speeds.toml", "--store", "results/unequal-speeds.jsonl")
    sweep, option, store = (str(ROOT / part) if "/" in part else part for part in study)
    plot(sweep, option, store, "--what", "times", "-o", str(picture))
    text = words(picture)
    rows = [
        text.index(name)
        for name in ("FedAvg", "FedBuff", "FedCompass, tuned", "Metronome, catch-up")
    ]
    assert rows == sorted(rows)
    assert {"≥ 72 s, 6 of 20 reached", "≥ 16 s, 19 of 20 reached", "64%", "0%"} <= set(text)
    assert "Time to accuracy at or above 80%: every seed, and the mean (bar)" in text
    only = ("--where", "row=Fed*")
    plot(sweep, option, store, "--what", "times", *only, "-o", str(picture))
    assert "Metronome" not in words(picture)


def test_times_are_of_one_comparison_along_one_axis(tmp_path: Path) -> None:
    study, store = ROOT / "studies" / "metronome-iid.toml", ROOT / "results" / "metronome-iid.jsonl"
    about = (str(study), "--store", str(store), "-o", str(tmp_path / "a.png"))
    with pytest.raises(SettingsError, match=r"differ in .*; narrow them to one axis with --where"):
        plot(*about, "--what", "times")
    with pytest.raises(SettingsError, match="draws one comparison, not 2; give one"):
        plot(str(study), *about, "--what", "times")
    with pytest.raises(SettingsError, match="--from and --until do not go with times"):
        plot(*about, "--what", "times", "--until", "3")
    with pytest.raises(SettingsError, match="--where and --store go with --what times, not with"):
        plot(*about, "--what", "timeline")
    empty = tmp_path / "none.jsonl"
    empty.touch()
    study = ROOT / "studies" / "unequal-speeds.toml"
    with pytest.raises(SettingsError, match="none of these is done"):
        plot(str(study), "--store", str(empty), "--what", "times", "-o", str(tmp_path / "a.png"))
