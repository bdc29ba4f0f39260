"""What GitHub and pre-commit read: CI runs `.ci/run` on every Python, hooks run our own tools."""

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").iterdir())
PIN = re.compile(r"\d+\.\d+")


def parsed(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return loaded["project"]  # type: ignore[no-any-return]


def jobs(workflow: Path) -> list[dict[str, Any]]:
    return list(parsed(workflow)["jobs"].values())


def test_ci_runs_what_ci_run_runs_and_nothing_besides() -> None:
    (job,) = jobs(ROOT / ".github/workflows/ci.yml")
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_ci_runs_on_the_pythons_that_the_package_names() -> None:
    (job,) = jobs(ROOT / ".github/workflows/ci.yml")
    tested = job["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "
    named = [each.removeprefix(prefix) for each in project()["classifiers"] if prefix in each]
    assert tested == [each for each in named if "." in each]
    assert project()["requires-python"] == f">={tested[0]}"
    (setup,) = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert setup["with"]["python-version"] == "${{ matrix.python }}"
    assert (ROOT / setup["with"]["cache-dependency-path"]).is_file()


def test_ci_takes_torch_from_where_the_image_takes_it() -> None:
    index = parsed(ROOT / ".github/workflows/ci.yml")["env"]["PIP_EXTRA_INDEX_URL"]
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"ARG TORCH_INDEX={index}\n" in image


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_reads_only_ends_in_time_and_runs_things_of_the_tree(workflow: Path) -> None:
    assert parsed(workflow)["permissions"] == {"contents": "read"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for job in jobs(workflow):
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/none@v0"))
            for line in step.get("run", "").splitlines():
                program, *arguments = shlex.split(line)
                if program == "make":
                    assert all(f"\n{target}:" in makefile for target in arguments), line
                else:
                    assert os.access(ROOT / program, os.X_OK), line


def test_hooks_run_the_tools_and_files_that_make_test_checks() -> None:
    (local,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    check = (ROOT / "scripts" / "check").read_text(encoding="utf-8")
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    entries = []
    for hook in local["hooks"]:
        assert hook["language"] == "system"
        assert "additional_dependencies" not in hook
        tool, *arguments = hook["entry"].removeprefix(".venv/bin/").split()
        assert re.search(rf"^{tool}==", pinned, re.MULTILINE)
        command = " ".join(each for each in (tool, *arguments) if not each.startswith("--"))
        assert f"$bin/{command}" in check
        entries.append(command)
    assert entries == ["ruff format", "ruff check", "mypy"]
    assert not PIN.search((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_an_issue_form_asks_each_thing_once_and_says_what_it_is_for(form: Path) -> None:
    asked = parsed(form)
    assert asked["name"]
    assert asked["description"]
    questions = [part for part in asked["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in questions} == {"textarea"}
    ids = [part["id"] for part in questions]
    assert len(set(ids)) == len(ids)
    assert all(part["attributes"]["label"] for part in questions)
    assert any(part.get("validations") == {"required": True} for part in questions)


def test_files_that_templates_and_the_security_policy_name_exist() -> None:
    pages = [ROOT / "SECURITY.md", ROOT / ".github/pull_request_template.md", *FORMS]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"[\w./-]+\.md\b", text)
        assert not [name for name in named if not (ROOT / name).is_file()], page
    assert "(docs/threat-model.md)" in pages[0].read_text(encoding="utf-8")
