"""The start page, tutorials and guides: their files and commands work as they are printed."""

import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fresh_environment import need

from fedcompass.settings.training import METRICS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from fedcompass.cli import main

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = sorted(path.name for path in DOCS.glob("own-*.md"))
PAGES = ["index.md", "sweeps.md", *GUIDES]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(guide: str, language: str) -> list[str]:
    text = (DOCS / guide).read_text(encoding="utf-8")
    return [body for kind, body in BLOCK.findall(text) if kind == language]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules, metrics = set(sys.modules), dict(METRICS)
    yield
    METRICS.clear()
    METRICS.update(metrics)
    for name in set(sys.modules) - modules:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def test_there_is_a_guide_for_each_task() -> None:
    tasks = ("data", "lora", "metric", "regression", "strategy", "text")
    assert [f"own-{task}.md" for task in tasks] == GUIDES


@pytest.mark.whatever_is_learned
@pytest.mark.parametrize("guide", PAGES)
def test_a_guides_files_and_commands_work_as_printed(
    guide: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if guide == "own-lora.md":
        need("peft")
    for body in blocks(guide, "python") + blocks(guide, "toml"):
        Path(body.split()[1]).write_text(body, encoding="utf-8")
    commands = [line for body in blocks(guide, "sh") for line in body.splitlines()]
    assert commands
    for line in commands:
        program, *options = shlex.split(line)
        assert program == "fedcompass"
        # In this process: which executor trains never changes a result.
        one = ["--workers", "1"]
        here = {"run": ["--executor", "serial"], "compare": one, "sweep": one}
        monkeypatch.setattr(sys, "argv", [program, *options, *here.get(options[0], [])])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, f"{line}\n{out}{err}"
        if options[0] == "run":
            assert "global updates     0 " not in out, line


def test_the_start_pages_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("index.md", "python")
    exec(compile(program, "first.py", "exec"), {})
    assert float(capsys.readouterr().out.split()[1]) > 0.3


def test_the_programs_of_the_guides_fit_a_screen() -> None:
    for guide in GUIDES:
        for body in blocks(guide, "python"):
            assert guide == "own-strategy.md" or body.count("\n") <= (
                25 if guide == "own-lora.md" else 45
            ), guide
