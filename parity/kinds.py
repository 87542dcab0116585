"""Check that data read from a file has the kinds of values its dataclass declares."""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def misfit(value: object, declared: Any, where: str = "") -> str | None:
    """Where ``value`` is not of the ``declared`` kind (``keys[3].state``), or None where it is.

    Known kinds: dataclasses, plain types and enumerations, ``X | None``, lists, dicts and tuples.
    An int counts as a float, a bool never as an int. ``Any`` is checked by whoever reads it.
    """
    if declared is Any:
        return None
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in (types.UnionType, typing.Union):
        found = [misfit(value, choice, where) for choice in arguments]
        return None if None in found else min(filter(None, found), key=len)
    if is_dataclass(declared):
        return _field_misfit(value, declared, where)
    if origin is None:
        allowed = (int, float) if declared is float else (declared,)
        return None if type(value) in allowed else where
    if type(value) is not origin:
        return where
    return _first(_items(value, origin, arguments, where))


Item = tuple[object, Any, str]


def _field_misfit(value: object, declared: Any, where: str) -> str | None:
    hints, dot = _hints(declared), "." if where else ""
    if type(value) is not declared:
        return where
    return _first(
        (getattr(value, name), hint, f"{where}{dot}{name}") for name, hint in hints.items()
    )


@cache
def _hints(declared: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(declared)
    return {field.name: hints[field.name] for field in fields(declared)}


def _items(value: Any, origin: Any, arguments: tuple[Any, ...], where: str) -> list[Item]:
    """What a list, dict or tuple holds, each with its declared kind and place."""
    if origin is dict:
        keys = [(key, arguments[0], where) for key in value]
        return keys + [(item, arguments[1], f"{where}[{key!r}]") for key, item in value.items()]
    kinds = arguments
    if origin is list or arguments[-1] is ...:
        kinds = (arguments[0],) * len(value)
    if len(kinds) != len(value):
        return [(None, int, where)]
    return [
        (item, kind, f"{where}[{at}]")
        for at, (item, kind) in enumerate(zip(value, kinds, strict=True))
    ]


def _first(items: typing.Iterable[Item]) -> str | None:
    return next((found for item in items if (found := misfit(*item)) is not None), None)
