import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fedcompass.errors import SettingsError
from fedcompass.models import build, build_seeded

SHAPE, CLASSES = (1, 4, 4), 3

USER_MODULE = """
import torch
from torch import nn

def plain():
    return nn.Linear(2, 2)

def fitted(classes, input_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], classes))

def only_classes(*, classes, width=5):
    return nn.Linear(width, classes)

def needs_more(input_shape, depth):
    return nn.Linear(1, depth)

def fails():
    raise RuntimeError("no\\nluck")

def nothing():
    pass

def anything(*args, **kwargs):
    assert not args and not kwargs
    return nn.Identity()

class Network(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.head = nn.Linear(1, classes)

    @classmethod
    def wide(cls):
        return cls(99)

instance = 5
"""


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's in the current directory, which is not on the path."""
    (tmp_path / "own_networks.py").write_text(USER_MODULE)
    (tmp_path / "own_broken.py").write_text("def f(:\n")
    (tmp_path / "own_needy.py").write_text("import a_package_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("own_networks", "own_broken", "own_needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def own(factory: str) -> nn.Module:
    return build(f"own_networks:{factory}", input_shape=SHAPE, classes=CLASSES)


def test_a_factory_in_the_current_directory_is_found_and_called_without_arguments() -> None:
    assert isinstance(own("plain"), nn.Linear)
    assert isinstance(own("anything"), nn.Identity)


def test_a_factory_gets_those_arguments_that_it_names() -> None:
    assert own("fitted")(torch.zeros(2, *SHAPE)).shape == (2, CLASSES)
    assert own("only_classes")(torch.zeros(2, 5)).shape == (2, CLASSES)


def test_a_class_or_its_method_is_a_factory_too() -> None:
    assert sum(p.numel() for p in own("Network").parameters()) == 2 * CLASSES
    assert sum(p.numel() for p in own("Network.wide").parameters()) == 2 * 99


def test_a_users_network_is_seeded_like_ours() -> None:
    first, again = (
        build_seeded("own_networks:plain", 3, input_shape=SHAPE, classes=CLASSES) for _ in range(2)
    )
    assert isinstance(first, nn.Linear)
    assert isinstance(again, nn.Linear)
    assert torch.equal(first.weight, again.weight)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":plain", "model ':plain' is not of the form package.module:name"),
        ("own_networks:", "is not of the form package.module:name"),
        (
            "own_nowhere:f",
            "importing own_nowhere raised ModuleNotFoundError: No module named 'own_nowhere'",
        ),
        ("own_broken:f", "importing own_broken raised SyntaxError"),
        ("own_needy:f", "importing own_needy raised .* No module named 'a_package_nobody_has'"),
        ("own_networks:absent", r"own_networks.py has no absent; it has: plain, "),
        ("own_networks:instance", "is a int; name a function or class that returns a torch.nn"),
        ("own_networks:needs_more", "asks for an argument 'depth'; it can have input_shape and"),
        ("own_networks:fails", "'own_networks:fails' raised RuntimeError: no luck"),
        ("own_networks:nothing", "returned None; it must return a torch.nn.Module"),
        ("builtins:dict", "returned a dict; it must return a torch.nn.Module"),
    ],
)
def test_a_factory_that_cannot_be_used_is_one_clear_line(name: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        build(name, input_shape=SHAPE, classes=CLASSES)
    assert "\n" not in str(caught.value)


def test_only_a_users_name_touches_the_import_path() -> None:
    before = list(sys.path)
    build("mlp", input_shape=SHAPE, classes=CLASSES)
    assert sys.path == before
