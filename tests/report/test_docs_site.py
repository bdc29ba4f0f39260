"""The docs as a site: all pages are in it, it builds strictly, and it needs no network."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
MADE_BY_THE_BUILD = {"commands.md"}
FROM_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^>]*>")


def pages_of(nav: object) -> list[str]:
    match nav:
        case str():
            return [nav]
        case dict():
            return [page for part in nav.values() for page in pages_of(part)]
        case list():
            return [page for part in nav for page in pages_of(part)]
        case _:
            raise AssertionError(nav)


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    if find_spec("mkdocs") is None:
        reason = "mkdocs is not installed (pip install -e '.[docs]')"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; CI must have it")
        pytest.skip(reason)
    return subprocess.run(
        # Not with -q: it would not count the warnings that fail a strict build.
        [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", site],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_the_docs_is_in_the_navigation_once() -> None:
    pages = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    docs = ROOT / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert sorted(pages) == sorted(there | MADE_BY_THE_BUILD)


def test_the_site_has_the_help_of_every_command_and_the_files_that_pages_link_to(
    site: Path,
) -> None:
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert "fedcompass deploy init" in commands
    assert "fedcompass run [OPTIONS]" in commands
    assert "simulate" in (site / "tree/examples/own_model_and_data.py.html").read_text("utf-8")
    assert "tree/examples/own_model_and_data.py.html" in (site / "own-data.html").read_text("utf-8")


def test_no_page_loads_fonts_or_scripts_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [
        found for page in pages for found in FROM_ELSEWHERE.findall(page.read_text("utf-8"))
    ] == []


def test_search_works_on_pages_opened_from_disk(site: Path, browser: Browser) -> None:
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("staleness")
    found = page.locator(".md-search-result__item")
    found.first.wait_for()
    assert "Settings" in found.first.inner_text()
    page.close()
    assert [url for url in asked if not url.startswith("file:")] == []


@pytest.mark.parametrize("broken", ["[gone](gone.md)", "[gone](#gone)", "[gone](../gone.py)"])
def test_a_broken_link_fails_the_build(broken: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{broken}\n", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    ours = (
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nplugins: []\nhooks: []\n"
    )
    config.write_text(ours, encoding="utf-8")
    done = build(config, tmp_path / "site")
    assert done.returncode == 1
    assert "gone" in done.stderr
