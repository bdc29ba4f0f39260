"""Medical data on the command line: which centers were found, and their samples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcompass.cli.progress import bars
from fedcompass.cli.text import plain_table
from fedcompass.data.medical.published import SOURCES

if TYPE_CHECKING:
    from fedcompass.data.dataset import Dataset
    from fedcompass.data.medical.census import CenterCensus
    from fedcompass.experiment import Experiment

__all__ = ["about_data", "check_centers", "list_centers"]


def about_data(experiment: "Experiment") -> None:
    """Prepare an experiment's data with a progress bar, then print remarks about them."""
    from fedcompass.simulation.problems import remarks_on

    name, root = experiment.data.name, experiment.data.root
    if name in SOURCES:
        _loaded(name, root)
    for remark in remarks_on(experiment):
        print(remark, flush=True)


def list_centers(root: Path | None) -> str:
    """A table of the medical datasets: how many centers of each were found, and where."""
    from fedcompass.data.medical.loading import find
    from fedcompass.errors import DataError

    rows = []
    for name, source in SOURCES.items():
        try:
            folder, present = find(source, root)
        except DataError:
            rows.append([name, "-", "not found"])
        else:
            rows.append([name, f"{len(present)} of {len(source.centers)}", str(folder)])
    return plain_table(["medical", "centers", "where"], rows, left=(0, 2))


def check_centers(name: str, root: Path | None) -> str:
    """Read and prepare a dataset whole; its samples and labels per center, and what is missing."""
    from fedcompass.data.medical.census import census
    from fedcompass.data.medical.loading import find

    source = SOURCES[name]
    dataset = _loaded(name, root)
    rows = census(dataset, source)
    shape = "x".join(map(str, dataset.input_shape))
    lines = [
        f"{name}: {find(source, root)[0]}, checked",
        f"{source.title}. {source.licence}",
        f"{len(dataset.train_inputs)} training and {len(dataset.test_inputs)} test samples, "
        f"{shape} for the network",
        *dataset.remarks,
        "",
        _sizes(rows),
    ]
    if source.labels:
        for place, part in enumerate(("training", "test")):
            counts = {row.name: row.labels[place] for row in rows}
            lines += ["", _labels(part, counts, source.labels)]
    return "\n".join(lines)


def _sizes(rows: "Sequence[CenterCensus]") -> str:
    cells: list[list[object]] = []
    for number, row in enumerate(rows):
        if row.published is None:
            said = "artificial" if any(row.sizes) else "missing"
        elif row.sizes == row.published:
            said = "as published"
        else:
            wanted = f"published {row.published[0]} and {row.published[1]}"
            said = f"differs: {wanted}" if any(row.sizes) else f"missing: {wanted}"
        cells.append([number, row.name, *row.sizes, said])
    cells.append(["all", "", *map(sum, zip(*(row.sizes for row in rows), strict=True)), ""])
    return plain_table(["center", "name", "training", "test", ""], cells, left=(1, 4))


def _labels(part: str, counts: Mapping[str, Sequence[int]], names: Sequence[str]) -> str:
    cells = [[center, *own] for center, own in counts.items()]
    cells.append(["all", *map(sum, zip(*counts.values(), strict=True))])
    return plain_table([part, *names], cells, left=(0,))


def _loaded(name: str, root: Path | None) -> "Dataset":
    from fedcompass.data.medical.loading import load

    told = f"prepared {name}, {{}}: {{}} samples".format
    with bars(f"preparing {name}, {{}}", told) as progress:
        return load(name, root, progress)
