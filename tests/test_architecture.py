"""Imports point one way; the schedulers are pure; the edge's libraries stay at the edge.

Every import counts, also one inside a function or under `if TYPE_CHECKING`: whoever reads a file
must know what the types and functions it names do, whenever they are loaded.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedcompass"

# A unit, a package or module right under fedcompass, imports only units of its own rank or lower.
# Units that are not listed are of the rank of the drivers.
RANKS = {
    "vocabulary": 0,
    "errors": 1,
    "error_text": 1,
    "finite_json": 1,
    "freed_memory": 1,
    "number_text": 2,
    "setting_tables": 1,
    "progress_bar": 1,
    "strategy_summaries": 1,
    "own_code": 1,
    "settings": 2,
    "scheduling": 3,
    "aggregation": 3,
    "secure_aggregation": 3,
    "privacy": 3,
    "training": 3,
    "models": 3,
    "data": 3,
    "theory": 3,
    "runs": 3,
    "report": 5,
    "advice": 5,
    "paper": 5,
    "cli": 6,
    "__main__": 7,
}
DRIVERS = 4

# What a unit may import of fedcompass besides itself, where rank alone is not strict enough.
ONLY = {
    "vocabulary": set[str](),
    "errors": {"vocabulary"},
    "setting_tables": set[str](),
    "settings": {"vocabulary", "errors", "setting_tables", "own_code"},
    "own_code": {"errors", "error_text"},
    "scheduling": {"vocabulary", "errors", "settings"},
    "aggregation": {"vocabulary", "errors", "settings"},
    "secure_aggregation": {"vocabulary", "errors"},
    "privacy": {"vocabulary", "errors", "settings", "runs", "secure_aggregation"},
    "theory": {"vocabulary", "errors", "settings", "scheduling"},
    "runs": {"vocabulary", "errors", "finite_json", "scheduling"},
}

# Likewise inside deployment/: a folder or module imports only those of a lower rank. So server/ and
# site/ know nothing of each other.
DEPLOYMENT = SOURCE / "deployment"
DEPLOYMENT_RANKS = {
    "addresses": 0,
    "backoff": 0,
    "certificate_dates": 0,
    "private_files": 0,
    "wire": 1,
    "app": 1,
    "demo_app": 2,
    "supervision": 2,
    "server": 3,
    "site": 3,
    "operator": 5,
}

IMPURE = {"torch", "numpy", "time", "random", "threading", "datetime", "asyncio", "os", "socket"}
EDGE_LIBRARIES = {"typer", "rich"}
EDGE = {"cli", "report", "paper", "progress_bar", "__main__"}

FILES = sorted(SOURCE.rglob("*.py"))


def unit_of(path: Path) -> str:
    """The package or module right under fedcompass that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imported_modules(path: Path) -> tuple[str, ...]:
    """The dotted name of everything a file imports, anywhere in it."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
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
    """The other units of fedcompass that a file imports; a public name is `__init__`'s."""
    names = {
        name.split(".")[1] for name in imported_modules(path) if name.startswith("fedcompass.")
    }
    exist = {
        name for name in names if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()
    }
    if names - exist - {"__version__"}:
        exist.add("__init__")
    return exist - {unit_of(path)}


Imports = dict[str, dict[str, list[str]]]
"""Unit -> unit it imports -> the files that do."""


def imports_between_units() -> Imports:
    found: Imports = {}
    for path in FILES:
        for unit in sorted(units(path)):
            found.setdefault(unit_of(path), {}).setdefault(unit, []).append(name_of(path))
    return found


def shortest_cycle(start: str, imports: Mapping[str, Mapping[str, object]]) -> list[str]:
    """The units on the shortest way from a unit back to itself; none if there is no way."""
    ways, seen = [[start]], set[str]()
    for way in ways:  # grows: breadth first
        for unit in imports.get(way[-1], {}):
            if unit == start:
                return [*way, start]
            if unit not in seen:
                seen.add(unit)
                ways.append([*way, unit])
    return []


def cycles_in_words(imports: Imports) -> list[str]:
    """Each cycle with the files that make it, unless a unit of it was named before."""
    named, texts = set[str](), []
    for start in sorted(imports):
        cycle = shortest_cycle(start, imports)
        if not cycle or named & set(cycle):
            continue
        named |= set(cycle)
        texts.append(" -> ".join(cycle))
        texts += [f"  {a} -> {b}: {', '.join(imports[a][b])}" for a, b in pairwise(cycle)]
    return texts


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def files_of(unit: str) -> list[Path]:
    return [path for path in FILES if unit_of(path) == unit]


@pytest.mark.parametrize("path", [p for p in FILES if unit_of(p) != "__init__"], ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    rank = RANKS.get(unit_of(path), DRIVERS)
    above = {unit for unit in units(path) if RANKS.get(unit, DRIVERS) > rank}
    assert not above, f"{name_of(path)} imports {sorted(above)}, which stand above it"


def test_no_units_import_each_other_directly_or_through_others() -> None:
    texts = cycles_in_words(imports_between_units())
    assert not texts, "\n".join(
        ["break these cycles: move what both sides need below both", *texts]
    )


def test_a_cycle_through_others_is_told_with_its_files() -> None:
    imports = {
        "a": {"b": ["a/one.py", "a/two.py"], "d": ["a/one.py"]},
        "b": {"c": ["b.py"]},
        "c": {"a": ["c.py"], "d": ["c.py"]},
    }
    assert cycles_in_words(imports) == [
        "a -> b -> c -> a",
        "  a -> b: a/one.py, a/two.py",
        "  b -> c: b.py",
        "  c -> a: c.py",
    ]
    del imports["b"]
    assert cycles_in_words(imports) == []


@pytest.mark.parametrize("unit", ONLY)
def test_the_core_imports_only_what_it_stands_on(unit: str) -> None:
    assert files_of(unit)
    for path in files_of(unit):
        extra = units(path) - ONLY[unit]
        assert not extra, f"{name_of(path)} imports {sorted(extra)}"


def types_in(path: Path) -> Iterator[str]:
    """The classes and the names for types that a file defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            yield ast.unparse(node.target)


def test_a_name_of_a_type_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for name in types_in(path):
            homes.setdefault(name, []).append(name_of(path))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_schedulers_see_no_tensor_clock_or_randomness() -> None:
    for path in files_of("scheduling"):
        assert not libraries(path) & IMPURE, f"{name_of(path)} is not pure"


def test_secure_rounds_see_no_tensor_clock_socket_or_randomness_of_their_own() -> None:
    for path in files_of("secure_aggregation"):
        impure = libraries(path) & (IMPURE - {"numpy"} | {"secrets"})
        assert not impure, f"{name_of(path)} is not pure: {impure}"


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


def deployment_parts(path: Path) -> set[str]:
    """The folders and modules right under deployment/ that a file imports, besides its own."""
    names = {
        name.split(".")[2]
        for name in imported_modules(path)
        if name.startswith("fedcompass.deployment.")
    }
    return (names & set(DEPLOYMENT_RANKS)) - {path.relative_to(DEPLOYMENT).parts[0]}


def test_every_part_of_the_deployment_has_a_rank() -> None:
    parts = {path.stem for path in DEPLOYMENT.iterdir() if not path.name.startswith("__")}
    assert parts == set(DEPLOYMENT_RANKS)


@pytest.mark.parametrize("path", files_of("deployment"), ids=name_of)
def test_imports_inside_the_deployment_point_one_way(path: Path) -> None:
    if path == DEPLOYMENT / "__init__.py":
        return  # the public names
    rank = DEPLOYMENT_RANKS[path.relative_to(DEPLOYMENT).parts[0].removesuffix(".py")]
    above = {part for part in deployment_parts(path) if DEPLOYMENT_RANKS[part] >= rank}
    assert not above, f"{name_of(path)} imports {sorted(above)}, which do not stand below it"


# What Flower documents for others to use; all else may change or go with any version.
PUBLIC_FLOWER = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
FLOWER = SOURCE / "flower"


def flower_names(tree: ast.AST) -> Iterator[str]:
    """Every module of Flower that a file names, and every name it takes from one: module:name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (ast.unparse(argument).strip("'") for argument in node.args)


def misuses_of_flower(text: str) -> list[str]:
    """What a source takes from Flower beyond its public names, or changes in it, with the line."""
    tree = ast.parse(text)
    taken = [name for name in flower_names(tree) if name.split(":")[0].split(".")[0] == "flwr"]
    found = []
    for name in taken:
        module, _, attribute = name.partition(":")
        public = getattr(import_module(module), "__all__", []) if module in PUBLIC_FLOWER else []
        if attribute not in public:
            found.append(name)
    if taken:
        found += [f"line {node.lineno}: {ast.unparse(node)}" for node in _reaches_inside(tree)]
    return found


def _reaches_inside(tree: ast.AST) -> Iterator[ast.expr]:
    """Private attributes of others; and assignments to others' attributes, by any means."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            private = node.attr.startswith("_") and not node.attr.endswith("__")
            private |= node.attr == "__dict__"
            if not own and (private or not isinstance(node.ctx, ast.Load)):
                yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "vars"):
            yield node


def test_only_public_names_of_flower_are_used_and_none_is_replaced() -> None:
    found = {name_of(path): misuses_of_flower(path.read_text(encoding="utf-8")) for path in FILES}
    assert {name: misuses for name, misuses in found.items() if misuses} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from flwr.app import Message", []),
        ("from flwr.serverapp import Grid\ngrid.push_messages([])", []),
        ("import flwr", ["flwr"]),
        ("from flwr.common import Context", ["flwr.common:Context"]),
        ("from flwr.app import Metadata, make_message", ["flwr.app:make_message"]),
        ("import_module('flwr.supercore.run')", ["flwr.supercore.run"]),
        ("from flwr.app import Message\nmessage._x", ["line 2: message._x"]),
        ("from flwr.app import Message\nMessage.ttl = 3", ["line 2: Message.ttl"]),
        ("from flwr.app import Message\nm.__dict__['ttl'] = 3", ["line 2: m.__dict__"]),
        (
            "from flwr.app import Message\nsetattr(Message, 'ttl', 3)",
            ["line 2: setattr(Message, 'ttl', 3)"],
        ),
        ("from fedcompass.flower import app\nself.other._x", []),
    ],
)
def test_what_reaches_inside_flower_is_found(text: str, found: list[str]) -> None:
    assert misuses_of_flower(text) == found


def test_flower_is_known_in_its_own_folder_only() -> None:
    users = {path for path in FILES if libraries(path) & {"flwr"}}
    assert users
    assert all(path.is_relative_to(FLOWER) for path in users)


def test_no_other_package_needs_the_flower_part() -> None:
    assert {unit_of(path) for path in FILES if "flower" in units(path)} == {"cli"}
