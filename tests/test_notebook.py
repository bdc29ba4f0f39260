"""The notebook in examples/: its cells run in order, and what they end with shows itself."""

import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "first_steps.ipynb"


def shown_by(cells: list[str], home: ModuleType) -> list[Any]:
    """The value of each cell's last line, as a notebook shows it."""
    values = []
    for number, source in enumerate(cells):
        *body, last = ast.parse(source).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), vars(home))
        values.append(
            eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), vars(home))
        )
    return values


def test_the_notebooks_cells_run_and_the_result_draws_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in code), "clear the outputs before you commit"
    home = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", home)
    result, last, tops, own = shown_by(["".join(cell["source"]) for cell in code], home)
    assert "<svg" in result._repr_html_()
    assert last["accuracy"] > 0.3
    assert set(tops) == {"fedavg", "fedcompass"}
    assert own > 0.6
