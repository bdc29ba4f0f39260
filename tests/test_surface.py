"""Each module says in `__all__` what it offers: all of its public names, and nothing else."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedcompass

ROOT = Path(fedcompass.__path__[0])
MODULES = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if path.stem != "__main__"
)


def exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def defined(tree: ast.Module) -> list[str]:
    """Public functions and classes made here."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    return [name for name in names if not name.startswith("_")]


def bound(tree: ast.Module) -> set[str]:
    """Every name a module has: imported, assigned or defined."""
    names: set[str] = set(defined(tree))
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


def lazily_served(tree: ast.Module) -> set[str]:
    """Strings in a module with a `__getattr__`, which makes names when they are asked for."""
    if "__getattr__" not in [getattr(node, "name", "") for node in tree.body]:
        return set()
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {value for value in strings if isinstance(value, str)}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_offers_exactly_its_public_names(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text(), module)
    names = exported(tree)
    if names is None:
        assert defined(tree) == [], f"{module} has no __all__"
        return
    assert len(names) == len(set(names)), f"{module} lists a name twice"
    assert sorted(set(defined(tree)) - set(names)) == [], f"{module} keeps these to itself"
    known = bound(tree) | lazily_served(tree)
    known |= {child.stem for child in (ROOT / module).parent.iterdir()}  # a package's modules
    assert sorted(set(names) - known) == [], f"{module} does not have these"
    assert not [name for name in names if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize("module", [name for name in MODULES if name.endswith("__init__.py")])
def test_a_package_says_what_it_is_in_one_sentence(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text(), module)
    docstring = ast.get_docstring(tree)
    assert docstring
    assert docstring.splitlines()[0].endswith(".")


def test_the_package_is_typed() -> None:
    spec = find_spec("fedcompass")
    assert spec is not None
    assert (ROOT / "py.typed").is_file()
