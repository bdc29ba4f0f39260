"""Imports point one way; the schedulers are pure; the edge's libraries stay at the edge."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedcompass"

# A unit, a package or module right under fedcompass, imports only units of its own rank or lower.
# Units that are not listed are of the rank of the drivers.
RANKS = {
    "vocabulary": 0,
    "errors": 1,
    "finite_json": 1,
    "settings": 2,
    "scheduling": 3,
    "aggregation": 3,
    "training": 3,
    "models": 3,
    "data": 3,
    "medical": 3,
    "theory": 3,
    "runs": 3,
    "report": 5,
    "figures": 5,
    "paper": 5,
    "cli": 6,
    "__main__": 7,
}
DRIVERS = 4

# What a unit may import of fedcompass besides itself, where rank alone is not strict enough.
ONLY = {
    "vocabulary": set[str](),
    "errors": {"vocabulary"},
    "settings": {"vocabulary", "errors"},
    "scheduling": {"vocabulary", "errors", "settings"},
    "aggregation": {"vocabulary", "errors", "settings"},
    "theory": {"vocabulary", "errors", "settings"},
    "runs": {"vocabulary", "errors", "finite_json", "scheduling"},
}

IMPURE = {"torch", "numpy", "time", "random", "threading", "datetime", "asyncio", "os", "socket"}
EDGE_LIBRARIES = {"typer", "rich"}
EDGE = {"cli", "report", "paper", "__main__"}

FILES = sorted(SOURCE.rglob("*.py"))


def unit_of(path: Path) -> str:
    """The package or module right under fedcompass that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> Iterator[str]:
    """The dotted name of everything a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def libraries(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported_modules(path)}


def units(path: Path) -> set[str]:
    """The other units of fedcompass that a file imports."""
    names = {
        name.split(".")[1] for name in imported_modules(path) if name.startswith("fedcompass.")
    }
    exist = {
        name for name in names if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()
    }
    return exist - {unit_of(path)}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def files_of(unit: str) -> list[Path]:
    return [path for path in FILES if unit_of(path) == unit]


@pytest.mark.parametrize("path", [p for p in FILES if unit_of(p) != "__init__"], ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    rank = RANKS.get(unit_of(path), DRIVERS)
    above = {unit for unit in units(path) if RANKS.get(unit, DRIVERS) > rank}
    assert not above, f"{name_of(path)} imports {sorted(above)}, which stand above it"


@pytest.mark.parametrize("unit", ONLY)
def test_the_core_imports_only_what_it_stands_on(unit: str) -> None:
    assert files_of(unit)
    for path in files_of(unit):
        extra = units(path) - ONLY[unit]
        assert not extra, f"{name_of(path)} imports {sorted(extra)}"


def test_schedulers_see_no_tensor_clock_or_randomness() -> None:
    for path in files_of("scheduling"):
        assert not libraries(path) & IMPURE, f"{name_of(path)} is not pure"


def test_nobody_imports_the_command_line() -> None:
    importers = {unit_of(path) for path in FILES if "cli" in units(path)}
    assert importers <= {"__main__"}


def test_only_the_edge_imports_the_command_lines_libraries() -> None:
    users = {unit_of(path) for path in FILES if libraries(path) & EDGE_LIBRARIES}
    assert users <= EDGE


def test_the_drivers_do_not_import_each_other() -> None:
    for driver, other in (("simulation", "deployment"), ("deployment", "simulation")):
        for path in files_of(driver):
            assert other not in units(path), f"{name_of(path)} imports {other}"
