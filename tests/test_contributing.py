"""CONTRIBUTING.md names files that exist, and its map leaves no package and no page out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, DOCS = ROOT / "src" / "fedcompass", ROOT / "docs"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

SPANS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL))
LINKS = re.findall(r"\]\(([^)#\s]+)\)", TEXT)
SUFFIX = re.compile(r"\.(py|md|toml|txt|yml|js|jsonl)$")
PLACEHOLDER = re.compile(r"FILE|NAME|:")
MADE_BY_MAKE = ".venv/"


def words() -> list[str]:
    return [*LINKS, *(word for span in SPANS for word in span.split())]


def is_path(word: str) -> bool:
    named = "/" in word or SUFFIX.search(word) is not None
    return named and not PLACEHOLDER.search(word) and not word.startswith(MADE_BY_MAKE)


PATHS = sorted({word for word in words() if is_path(word)})


@pytest.mark.parametrize("path", PATHS)
def test_every_path_in_contributing_exists(path: str) -> None:
    folders = (ROOT,) if path in LINKS else (ROOT, PACKAGE, DOCS)
    found = [each for folder in folders for each in folder.glob(path)]
    assert found, f"CONTRIBUTING.md names {path}"
    assert not path.endswith("/") or found[0].is_dir()


def test_the_map_names_every_package() -> None:
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    named = {f"{path.split('/')[0]}/" for path in PATHS if path.endswith("/")}
    assert sorted(packages - named) == []


def test_the_map_names_every_page() -> None:
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert sorted(pages - {Path(path).name for path in PATHS}) == []
