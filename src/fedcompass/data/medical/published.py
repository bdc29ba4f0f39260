"""What is known about each medical dataset: centers, sizes, labels, licence, how to get it."""

from dataclasses import dataclass

__all__ = ["SOURCES", "MedicalSource"]


@dataclass(frozen=True, slots=True)
class MedicalSource:
    """A dataset whose samples come from several centers.

    folders: where below a data root people keep it, in the order searched.
    centers: their names; a center's number is its place here.
    train, test: published samples of each center; empty where nothing is published.
    labels: what the label numbers mean; empty for masks.
    obtain: what to do to get it.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    centers: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    labels: tuple[str, ...]
    licence: str
    obtain: str


def _flamby(name: str, *others: str) -> tuple[str, ...]:
    """The usual folders: FLamby's own name, ours, others, and the root itself."""
    return (name, name.replace("_", "-"), *others, ".")


_FROM_FLAMBY = "download it with FLamby ({}), which asks you to accept its licence"

HEART = MedicalSource(
    name="fed-heart-disease",
    title="Fed-Heart-Disease, 13 features of heart patients",
    folders=_flamby("fed_heart_disease", "heart_disease_dataset", "heart_disease"),
    centers=("cleveland", "hungarian", "switzerland", "va"),
    train=(199, 172, 30, 85),
    test=(104, 89, 16, 45),
    labels=("healthy", "disease"),
    licence="CC BY 4.0, UCI Heart Disease (Janosi, Steinbrunn, Pfisterer, Detrano, 1988).",
    obtain=_FROM_FLAMBY.format("fed_heart_disease/dataset_creation_scripts/download.py"),
)

BRCA = MedicalSource(
    name="fed-tcga-brca",
    title="Fed-TCGA-BRCA, survival of breast cancer patients from 39 features",
    folders=_flamby("fed_tcga_brca"),
    centers=("northeast", "south", "west", "midwest", "europe", "canada"),
    train=(248, 156, 164, 129, 129, 40),
    test=(63, 40, 42, 33, 33, 11),
    labels=("censored", "event"),
    licence="Open-access GDC/TCGA data; users bind themselves not to identify participants.",
    obtain="copy brca.csv and train_test_split.csv from FLamby's fed_tcga_brca folder",
)

ISIC = MedicalSource(
    name="fed-isic2019",
    title="Fed-ISIC2019, dermoscopy images of skin lesions",
    folders=_flamby("fed_isic2019", "ISIC_2019", "isic2019"),
    centers=("bcn", "vidir_molemax", "vidir_modern", "rosendahl", "msk", "vienna_dias"),
    train=(9930, 3163, 2691, 1807, 655, 351),
    test=(2483, 791, 672, 452, 164, 88),
    labels=("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC"),
    licence="Non-commercial: ISIC 2019 is CC BY-NC 4.0, HAM10000 has its own terms.",
    obtain=_FROM_FLAMBY.format("fed_isic2019/dataset_creation_scripts/download_isic.py")
    + "; its file train_test_split goes beside the images",
)

IXI = MedicalSource(
    name="fed-ixi",
    title="Fed-IXI, brain masks of T1-weighted MRI volumes",
    folders=_flamby("fed_ixi", "IXI-Dataset", "ixi"),
    centers=("Guys", "HH", "IOP"),
    train=(249, 145, 59),
    test=(62, 36, 15),
    labels=(),
    licence="CC BY-SA 3.0, brain-development.org.",
    obtain=_FROM_FLAMBY.format("fed_ixi/dataset_creation_scripts/download.py"),
)

HIPPOCAMPUS = MedicalSource(
    name="msd-hippocampus",
    title="MSD hippocampus, a stand-in for Fed-IXI: three ARTIFICIAL sites, not hospitals",
    folders=_flamby("msd_hippocampus", "Task04_Hippocampus"),
    centers=("artificial_site_0", "artificial_site_1", "artificial_site_2"),
    train=(),
    test=(),
    labels=(),
    licence="CC BY-SA 4.0, Medical Segmentation Decathlon (arXiv:1902.09063).",
    obtain="download Task04_Hippocampus.tar from medicaldecathlon.com and unpack it",
)

SOURCES: dict[str, MedicalSource] = {s.name: s for s in (HEART, BRCA, ISIC, IXI, HIPPOCAMPUS)}
