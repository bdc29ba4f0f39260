"""Adds to the pages of docs/: each command's help, and the files of the tree that pages link to."""

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".sbatch": "bash"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name headings as GitHub does, so that a link to one works here and there."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of commands, and a page for each file outside docs/ that a page links to."""
    files.append(File.generated(config, "commands.md", content=commands_page()))
    pages = [file.src_uri for file in files.documentation_pages() if file.abs_src_path]
    for path in sorted({path for page in pages for path in _linked(page).values()}):
        shown = File.generated(config, _page_of(path), content=_listing(path))
        shown.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(shown)
    return files


def on_page_markdown(
    markdown: str,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001  mkdocs passes it
    files: Files,  # noqa: ARG001  likewise
) -> str:
    """Let links that lead out of docs/ lead to the pages made for them."""
    if not page.file.abs_src_path:
        return markdown
    linked = _linked(page.file.src_uri)
    return LINK.sub(partial(_redirected, page.file.src_uri, linked), markdown)


def commands_page() -> str:
    """The help of every command, as `fedcompass COMMAND --help` prints it in 80 columns."""
    import typer.main

    from fedcompass.cli.app import app

    lead = (
        "# Commands\n\nWhat `--help` prints, command by command. Each setting of an experiment is "
    )
    parts = [lead + "in [settings.md](settings.md).\n"]
    _add_help(typer.main.get_command(app), "fedcompass", None, parts)
    return "\n".join(parts)


def _add_help(command: Any, name: str, parent: click.Context | None, parts: list[str]) -> None:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80)
    parts.append(f"## `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```\n")
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            _add_help(command.get_command(context, each), each, context, parts)


def _linked(page: str) -> dict[str, str]:
    """Links of a page that lead out of docs/, and the files of the tree that they mean."""
    folder = (ROOT / "docs" / page).parent
    found = {}
    for link in LINK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        path = Path(os.path.normpath(folder / link)).relative_to(ROOT)
        if path.parts[0] == "docs":
            continue
        if not (ROOT / path).is_file():
            raise PluginError(f"docs/{page} links to {link}: {path} is no file of the tree")
        found[link] = path.as_posix()
    return found


def _redirected(page: str, linked: dict[str, str], match: re.Match[str]) -> str:
    if match[1] not in linked:
        return match[0]
    return f"]({os.path.relpath(_page_of(linked[match[1]]), Path(page).parent)})"


def _notebook(path: str, text: str) -> str:
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    shown = [f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells]
    return (
        f"# {path}\n\n" + "\n\n".join(shown).replace("# fedcompass in", "## fedcompass in") + "\n"
    )


def _page_of(path: str) -> str:
    return f"tree/{path}.md"


def _listing(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        return _notebook(path, text)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n`````{language}\n{text}`````\n"
