"""Checked, frozen settings whose errors name the field, the value and what is allowed."""

from typing import Any, get_args

import annotated_types
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fedcompass.errors import SettingsError
from fedcompass.setting_tables import unknown_key

__all__ = ["Settings"]

_BOUNDS = (
    (annotated_types.Ge, "ge", "at least"),
    (annotated_types.Gt, "gt", "above"),
    (annotated_types.Le, "le", "at most"),
    (annotated_types.Lt, "lt", "below"),
)


class Settings(BaseModel):
    """A frozen group of settings; an unknown key or a value out of range raises `SettingsError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = [_explain(type(self), detail) for detail in error.errors()]
            raise SettingsError("; ".join(problems)) from None


def _explain(model: type[BaseModel], detail: ErrorDetails) -> str:
    name = ".".join(str(part) for part in detail["loc"])
    field = model.model_fields.get(str(detail["loc"][0])) if detail["loc"] else None
    match detail["type"]:
        case "extra_forbidden":
            where = model.__name__.removesuffix("Settings").lower()
            return unknown_key(name, model.model_fields, where)
        case "missing":
            return f"{name} is missing; allowed: {_allowed(field)}"
        case "value_error":
            return _own_message(name, detail)
        case _:
            return f"{name} is {detail['input']!r}; allowed: {_allowed(field) or detail['msg']}"


def _own_message(name: str, detail: ErrorDetails) -> str:
    """A message one of our own validators wrote, prefixed with the field unless it names it."""
    message = str(detail["ctx"]["error"])
    return message if not name or message.startswith(name) else f"{name}: {message}"


def _allowed(field: FieldInfo | None) -> str:
    if field is None:
        return ""
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return f"a table with {', '.join(field.annotation.model_fields)}"
    bounds = [
        f"{words} {getattr(mark, attribute):g}"
        for kind, attribute, words in _BOUNDS
        for mark in field.metadata
        if isinstance(mark, kind)
    ]
    choices = [repr(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    if choices:
        return "one of " + ", ".join(choices)
    kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    words = kind.get(field.annotation, "") if isinstance(field.annotation, type) else ""
    return " ".join(part for part in (words, " and ".join(bounds)) if part)
