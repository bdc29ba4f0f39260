"""The pages about deployment: commands, messages, settings, tests and code they name exist."""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from click import Command, Group

from fedcompass.cli.setting_rows import setting_rows
from fedcompass.deployment.app.app_file import AppFile, load_app
from fedcompass.deployment.app.trainer import Site
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.project import NetworkSettings
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.deployment.site.site_folder import SiteSettings
from fedcompass.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = {
    name: ROOT / "docs" / f"{name}.md" for name in ("deployment", "threat-model", "operations")
}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
VARIES = "…"


def commands() -> Mapping[str, Command]:
    from fedcompass.cli.app import app

    found = typer.main.get_command(app)
    assert isinstance(found, Group)
    return found.commands


def mentions(text: str) -> Iterator[str]:
    """Every piece of code that names our command line, up to the end of its line or span."""
    for piece in re.findall(r"(?:`([^`]+)`|^([^`\n|]+)$)", text, flags=re.MULTILINE):
        for code in piece:
            for line in code.splitlines():
                yield from re.findall(r"fedcompass (?:deploy|watch|report|strategies)\b[^#]*", line)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_on_the_pages_exists(page: str) -> None:
    known = commands()
    seen = list(mentions(TEXTS[page]))
    wrong = []
    for line in seen:
        words = line.split()[1:]
        command = known[words[0]]
        if isinstance(command, Group) and len(words) > 1:
            command = command.commands.get(words[1], command)
            wrong += [line] if isinstance(command, Group) else []
        options = {name for parameter in command.params for name in parameter.opts}
        wrong += [line for word in words if word.startswith("--") and word not in options]
    assert wrong == []
    assert seen or page == "threat-model"


def literals() -> list[str]:
    """Every text in the source, what varies replaced by one sign."""
    found = []
    for path in sorted((ROOT / "src" / "fedcompass").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(map(_part, node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else VARIES


def quoted_messages() -> list[str]:
    _, _, section = TEXTS["operations"].partition("## What each message means")
    return re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)


def occurs(message: str, texts: list[str]) -> bool:
    """Whether one text of the source has all fixed parts of a message, in this order."""
    parts = [part for part in message.split(VARIES) if part.strip()]
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.search(text) for text in texts)


def test_every_message_that_is_explained_occurs_in_the_source() -> None:
    texts = literals()
    messages = quoted_messages()
    assert len(messages) > 70
    assert [message for message in messages if not occurs(message, texts)] == []


def test_every_line_of_the_audit_log_is_explained() -> None:
    source = (ROOT / "src/fedcompass/deployment").rglob("*.py")
    code = "\n".join(path.read_text(encoding="utf-8") for path in source)
    said = set(re.findall(r'audit\.say\(\s*"([a-z ]+)"', code))
    said |= set(re.findall(r'(?:return|self\._add\()\s*"([a-z ]+)", ', code)) & {
        "joined", "accepted", "refused", "task lost", "left", "readmitted", "merged", "quarantined",
        "waits",
    }  # fmt: skip
    assert len(said) > 12
    assert [what for what in sorted(said) if f"`{what}`" not in TEXTS["operations"]] == []


def settings_in(title: str) -> dict[str, str]:
    """The defaults in the table under a heading."""
    _, _, after = TEXTS["deployment"].partition(f"### {title}\n")
    section = after.partition("\n### ")[0]
    rows = (line.replace("\\|", "/").split("|") for line in section.splitlines())
    return {cells[1].strip(" `"): cells[2].strip() for cells in rows if len(cells) == 6}


@pytest.mark.parametrize(
    ("title", "settings", "no_default"),
    [
        ("deployment.toml, [server]", NetworkSettings(), ()),
        (
            "deployment.toml, [federation]",
            FederationSettings(max_updates=1),
            ("max_updates", "strategy"),
        ),
        ("site.toml", SiteSettings(name="n", server="h:1"), ("name", "server")),
    ],
)
def test_every_setting_is_in_its_table_with_its_default(
    title: str, settings: Settings, no_default: tuple[str, ...]
) -> None:
    told = settings_in(title)
    rows = {row.key: row.value for row in setting_rows(settings)}
    assert [key for key in told if key not in ("key", "---") and key not in rows] == []
    assert {key: told.get(key) for key in rows if key not in no_default} == {
        key: value for key, value in rows.items() if key not in no_default
    }
    assert set(no_default) <= set(told)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_and_module_a_page_names_exists(page: str) -> None:
    missing = []
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXTS[page]):
        path = ROOT / file
        code = path.read_text(encoding="utf-8") if path.is_file() else ""
        if not code or (name and f"def {name}(" not in code):
            missing.append(f"{file}::{name}")
    for row in TEXTS[page].splitlines():
        for module in re.findall(r"`((?:[a-z_]+/)?[a-z_]+\.py)`", row):
            paths = [ROOT / "src/fedcompass" / folder / module for folder in ("deployment", "")]
            missing += [] if any(path.is_file() for path in paths) else [module]
    assert set(missing) <= {"app.py", "federation/app.py"}  # a user's


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)]+)\)", TEXTS[page]):
        file, _, anchor = target.partition("#")
        path = (PAGES[page].parent / file) if file else PAGES[page]
        if not path.is_file() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.fixture
def own_app(tmp_path: Path) -> AppFile:
    """The page's example of an own model and data, with data."""
    _, _, after = TEXTS["deployment"].partition("## Your own model and data")
    code = after.partition("```python\n")[2].partition("```")[0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 25
    (tmp_path / "app.py").write_text(code, encoding="utf-8")
    random = np.random.default_rng(0)
    for name, rows in (("train.csv", 200), ("test.csv", 100)):
        inputs = random.normal(size=(rows, 8))
        table = np.column_stack([inputs, inputs.sum(axis=1) > 0])
        np.savetxt(tmp_path / name, table, delimiter=",", fmt="%.4f")
    return load_app(tmp_path / "app.py")


def test_the_example_of_an_own_model_and_data_trains(own_app: AppFile, tmp_path: Path) -> None:
    site = Site("north", tmp_path)
    rounds = SiteRounds(own_app.model(), own_app.trainer(site), site)
    start = rounds.layout.state_of(own_app.model())
    losses = [rounds.run(start, steps=steps, task=1).loss for steps in (2, 20, 80)]
    assert all(later < earlier for earlier, later in pairwise(losses))
    samples = own_app.test_set()
    assert samples is not None
    assert len(samples) == 100
