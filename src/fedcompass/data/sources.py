"""What is known about each published dataset: files, checksums, mirrors, licence."""

from dataclasses import dataclass

from fedcompass.data.medical.published import SOURCES as MEDICAL_SOURCES
from fedcompass.errors import SettingsError
from fedcompass.setting_tables import unknown_key

__all__ = ["BUNDLED", "MEDICAL", "NAMES", "SOURCES", "Source", "SourceFile", "source"]

BUNDLED = "mnist-mini"
"""The subset of MNIST inside the package; needs no download."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as published.

    md5: of the file's own bytes.
    content_md5: of what is inside a .gz, where known; lets in a file unpacked or packed anew.
    """

    name: str
    md5: str
    content_md5: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A published dataset.

    files: what `fetch` downloads, from the first of `mirrors` that answers.
    folders: where below a data root people keep it, in the order searched; the first is ours.
    """

    name: str
    title: str
    files: tuple[SourceFile, ...]
    mirrors: tuple[str, ...]
    folders: tuple[str, ...]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    licence: str


MNIST = Source(
    name="mnist",
    title="MNIST, handwritten digits",
    # The published md5 sums of the .gz files; the contents' sums were taken from those very files.
    files=(
        SourceFile(
            "train-images-idx3-ubyte.gz",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        SourceFile(
            "train-labels-idx1-ubyte.gz",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "a25bea736e30d166cdddb491f175f624",
        ),
        SourceFile(
            "t10k-images-idx3-ubyte.gz",
            "9fb629c4189551a2d022fa330f9573f3",
            "2646ac647ad5339dbf082846283269ea",
        ),
        SourceFile(
            "t10k-labels-idx1-ubyte.gz",
            "ec29112dd5afa0611ce80d1b7f02629c",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    folders=("mnist", "MNIST/raw", "MNIST", "raw", "."),
    classes=10,
    mean=(0.1307,),
    std=(0.3081,),
    licence="Copyright Y. LeCun and C. Cortes; commonly stated as CC BY-SA 3.0.",
)

FASHION_MNIST = Source(
    name="fashion-mnist",
    title="Fashion-MNIST, articles of clothing",
    files=(
        SourceFile("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        SourceFile("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        SourceFile("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        SourceFile("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "raw", "."),
    classes=10,
    mean=(0.2860,),
    std=(0.3530,),
    licence="MIT, Zalando SE.",
)

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10, small photographs",
    # The binary version: the python version is a pickle, and holds nothing more that we need.
    files=(SourceFile("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    mirrors=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
    folders=("cifar10", "cifar-10", "CIFAR10", "."),
    classes=10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    licence="No licence is published; the authors ask to cite A. Krizhevsky, 2009.",
)

SOURCES: dict[str, Source] = {s.name: s for s in (MNIST, FASHION_MNIST, CIFAR10)}

MEDICAL: tuple[str, ...] = tuple(MEDICAL_SOURCES)
"""The medical datasets, which are naturally split into centers; `data.medical` has them."""

NAMES: tuple[str, ...] = (BUNDLED, *SOURCES, *MEDICAL)
"""Every dataset `catalogue.load` knows."""


def source(name: str) -> Source:
    """The published dataset of that name.

    Raises:
        SettingsError: for an unknown name, and for the bundled one, which has no published files.
    """
    if name == BUNDLED:
        raise SettingsError(f"dataset {name!r} is part of fedcompass; there is nothing to fetch")
    if name in MEDICAL_SOURCES:
        obtain = MEDICAL_SOURCES[name].obtain
        raise SettingsError(f"dataset {name!r} is not ours to fetch; {obtain}")
    if name not in SOURCES:
        raise SettingsError(unknown_key(name, NAMES, "the catalogue", "dataset"))
    return SOURCES[name]
