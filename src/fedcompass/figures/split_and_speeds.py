"""A run's data split and its clients' speeds: the figures of the commands of those names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.figures.records import RunRecord
from fedcompass.figures.style import check_picture, publication_style

__all__ = ["draw_fleets_of", "draw_partition_of"]


def draw_partition_of(run: RunRecord, path: Path) -> Path:
    """Draw who holds how many samples of which class in a run.

    Raises:
        MissingExtra: matplotlib is not installed.
        DataError: the run's dataset is not there.
        SettingsError: the run is not a simulation's, or the path is no picture's.
    """
    from fedcompass.data.catalogue import load
    from fedcompass.data.partition import class_counts, partition
    from fedcompass.data.partition_settings import PartitionSettings
    from fedcompass.data.pictures import draw_partition

    check_picture(path)
    data, split = _table(run, "data"), _table(run, "partition")
    clients, seed = _table(run, "fleet")["clients"], run.settings["seed"]
    root = Path(data["root"]) if data.get("root") else None
    loaded = load(data["name"], root)
    parts = partition(
        loaded.train_targets,
        loaded.classes,
        clients,
        PartitionSettings(**split),
        seed,
        loaded.train_centers,
    )
    counts = class_counts(parts, loaded.train_targets, loaded.classes)
    title = f"{data['name']}, {split.get('kind', 'class')} partition, seed {seed}"
    with publication_style():
        draw_partition(counts, path, title)
    return path


def draw_fleets_of(runs: Sequence[RunRecord], path: Path) -> Path:
    """Draw how the clients' paces are spread; runs on the same fleet share a panel.

    Raises:
        MissingExtra: matplotlib is not installed.
        SettingsError: a run is not a simulation's, or the path is no picture's.
    """
    from fedcompass.simulation.fleet import Fleet, FleetSettings
    from fedcompass.simulation.fleet_histogram import draw_fleet

    check_picture(path)
    fleets: dict[str, Fleet] = {}
    for run in runs:
        fleet = Fleet(FleetSettings(**_table(run, "fleet")), run.settings["seed"])
        if all(fleet.paces != known.paces for known in fleets.values()):
            title = f"{fleet.settings.speed}, {len(fleet)} clients, seed {fleet.seed}"
            fleets[title if title not in fleets else f"{title}, {run.name}"] = fleet
    with publication_style():
        return draw_fleet(dict(fleets), path)


def _table(run: RunRecord, key: str) -> dict[str, Any]:
    table = run.settings.get(key)
    if not isinstance(table, dict) or "seed" not in run.settings:
        raise SettingsError(f"{run.files.path} does not say its {key}; give a simulated run")
    return table
