"""A settings object as rows to print: each key with its value, what is allowed, what it is for."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ["SettingRow", "setting_rows"]

_KINDS = {int: "whole number", float: "number", bool: "true|false", str: "text", Path: "path"}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


class SettingRow(NamedTuple):
    """One setting, as text.

    choices: the names it may have; none if it is not one of a few.
    kind: of its values; one with choices is text.
    """

    key: str
    value: str
    allowed: str
    meaning: str
    choices: tuple[str, ...] = ()
    kind: type = str

    @property
    def table(self) -> str:
        """The key's first part."""
        return self.key.partition(".")[0]


def setting_rows(settings: BaseModel, prefix: str = "") -> Iterator[SettingRow]:
    """A row for every setting; those of a nested table have dotted keys."""
    meanings = _meanings(type(settings))
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from setting_rows(value, f"{prefix}{name}.")
        else:
            options = _options(field.annotation)
            yield SettingRow(
                prefix + name,
                _text(value),
                _allowed(field),
                meanings.get(name, ""),
                choices=tuple(option for option in options if isinstance(option, str)),
                kind=next((option for option in options if option in _KINDS), str),
            )


def _text(value: Any) -> str:
    match value:
        case None:
            return "unset"
        case bool():
            return str(value).lower()
        case tuple():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return str(value)


def _allowed(field: "FieldInfo") -> str:
    options = _options(field.annotation)
    choices = [str(option) for option in options if isinstance(option, str | int)]
    kinds = [_KINDS[kind] for kind in options if kind in _KINDS]
    kinds += ["list" for option in options if get_origin(option) is tuple]
    kinds += ["table" for option in options if get_origin(option) is dict]
    bounds = [
        f"{sign} {getattr(mark, name):g}"
        for name, sign in _SIGNS.items()
        for mark in field.metadata
        if hasattr(mark, name)
    ]
    text = " ".join(filter(None, ["|".join([*choices, *kinds]), " and ".join(bounds)]))
    return f"{text}, or unset" if NoneType in options else text


def _options(annotation: Any) -> list[Any]:
    """The types and choices an annotation is made of, whatever it is wrapped in."""
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    if get_origin(annotation) in (UnionType, Union, Literal):
        return [option for part in get_args(annotation) for option in _options(part)]
    return [annotation]


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """What each field is for: its description, the text below it, or its class's docstring."""
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            texts |= _texts_in_docstring(kind)
            texts |= _texts_below_fields(kind)
    texts |= {n: f.description for n, f in model.model_fields.items() if f.description}
    return {name: " ".join(text.split()).removesuffix(".") for name, text in texts.items()}


def _texts_in_docstring(kind: type[BaseModel]) -> dict[str, str]:
    """Entries such as `jitter: each local round takes …`, the following lines indented."""
    entries = re.findall(
        r"^(\w+(?:, \w+)*): (.+(?:\n[ \t]+\S.*)*)", inspect.getdoc(kind) or "", re.MULTILINE
    )
    return {name: text for names, text in entries for name in names.split(", ")}


def _texts_below_fields(kind: type) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # made in an interactive session
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                texts[name] = text
            case _:
                pass
    return texts
