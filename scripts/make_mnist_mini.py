"""Make the bundled subset of MNIST from the full MNIST.

usage: python scripts/make_mnist_mini.py [--data-root FOLDER] [DEST]

Stratified: each class keeps its share, and its images are taken at even distances in the published
order, so no random numbers are needed and the subset spans all writers. The result is four idx .gz
files without name or time in their headers: the same zlib gives the same bytes.
"""

import argparse
import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcompass.data import catalogue
from fedcompass.data.paper_partitions import apportion

TRAIN_SAMPLES, TEST_SAMPLES = 10_000, 2_000
BUNDLED = Path(catalogue.__file__).parent / "bundled" / "mnist-mini"


def main() -> None:
    """Read the command line, write the four files and say how large they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("dest", nargs="?", type=Path, default=BUNDLED)
    parser.add_argument("--data-root", type=Path, default=None)
    options = parser.parse_args()
    options.dest.mkdir(parents=True, exist_ok=True)
    for name, content in make(options.data_root).items():
        packed = gzip.compress(content, compresslevel=9, mtime=0)
        (options.dest / f"{name}.gz").write_bytes(packed)
        print(f"{name}.gz  {len(packed):,} bytes")


def make(data_root: Path | None = None) -> dict[str, bytes]:
    """The four idx files of the subset, not yet packed, by name."""
    full = catalogue.load("mnist", data_root)
    train = evenly_spaced(full.train_targets.numpy(), TRAIN_SAMPLES)
    test = evenly_spaced(full.test_targets.numpy(), TEST_SAMPLES)
    return {
        "train-images-idx3-ubyte": idx(full.train_inputs[train, 0].numpy()),
        "train-labels-idx1-ubyte": idx(full.train_targets[train].numpy()),
        "t10k-images-idx3-ubyte": idx(full.test_inputs[test, 0].numpy()),
        "t10k-labels-idx1-ubyte": idx(full.test_targets[test].numpy()),
    }


def evenly_spaced(labels: NDArray[np.int64], samples: int) -> NDArray[np.int64]:
    """Indices of a stratified subset, ascending."""
    sizes = np.bincount(labels)
    kept = apportion(sizes.astype(np.float64), samples)
    chosen = []
    for label, (size, count) in enumerate(zip(sizes, kept, strict=True)):
        places = (2 * np.arange(count) + 1) * size // (2 * count)  # middles of `count` equal runs
        chosen.append(np.flatnonzero(labels == label)[places])
    return np.sort(np.concatenate(chosen))


def idx(values: NDArray[np.generic]) -> bytes:
    """An array of bytes in the idx format."""
    header = struct.pack(f">4B{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


if __name__ == "__main__":
    main()
