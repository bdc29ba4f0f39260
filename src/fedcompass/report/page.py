"""The page's HTML: one shell, one style, one script, and the data, with nothing from outside."""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

__all__ = ["content_policy", "page"]

_SCRIPTS = (
    "numbers.js",
    "elements.js",
    "lane.js",
    "run_model.js",
    "groups.js",
    "loading.js",
    "timeline_words.js",
    "timeline_marks.js",
    "timeline_lanes.js",
    "svg_pen.js",
    "timeline.js",
    "timeline_pointing.js",
    "timeline_view.js",
    "charts.js",
    "pictures.js",
    "panel.js",
    "timeline_panel.js",
    "curves_panel.js",
    "panels.js",
    "per_client.js",
    "app.js",
)
"""In the order in which they stand in the page; each may use what those before it define."""


def page(facts: str, blocks: Mapping[str, str], *, live: bool = False) -> str:
    """The whole page.

    Args:
        facts: the runs' facts as JSON, made harmless by `plain_json`.
        blocks: packed lines by the id of their script element, as base64.
        live: whether it asks its server for lines instead.
    """
    data = "\n".join(
        f'<script type="text/plain" id="{name}">{text}</script>' for name, text in blocks.items()
    )
    parts = {
        "policy": content_policy(live=live),
        "style": _style(),
        "script": _script(),
        "facts": facts,
        "data": data,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("page.html"))


def content_policy(*, live: bool) -> str:
    """A policy that allows the page's own script and style, a live page's server, and nothing else.

    Text of a run that got into the markup could not run.
    """
    connect = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; script-src '{_hash(_script())}'; style-src '{_hash(_style())}'; "
        f"{connect}img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _file(name: str) -> str:
    return (files("fedcompass.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return _file("style.css")


@cache
def _script() -> str:
    parts = "\n".join(f"// --- {name}\n{_file(name)}" for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
