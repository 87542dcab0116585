"""The values of a config.json, each checked when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from parity.dumps.safetensors import parse_object
from parity.errors import InputError
from parity.model.mapping import read_file

REMAKE = "check how the folder was made"
_MOST = 1 << 40  # far above any size of a model


@dataclass(frozen=True)
class Settings:
    """One JSON object of the file ``path``; ``at``: where it stands in it, "" or ``text_config.``.

    A value that is null counts as absent. Everything wrong raises InputError with the file's name
    and the key's.
    """

    path: Path
    values: Mapping[str, Any]
    at: str = ""

    @classmethod
    def read(cls, path: Path) -> Settings:
        """The settings of a file."""
        return cls(path, parse_object(path, read_file(path), "the file"))

    def refuse(self, key: str, what: str, next_step: str = REMAKE) -> NoReturn:
        """Raise InputError about ``key``."""
        raise InputError(f"{self.path}: {self.at}{key} {what}", next_step)

    def get(self, key: str) -> Any:
        """The value as it is, None where there is none."""
        return self.values.get(key)

    def inner(self, key: str) -> Settings | None:
        """The object under ``key``, None where there is none."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(key, "is not an object")
        return Settings(self.path, value, f"{self.at}{key}.")

    def size(self, key: str, least: int = 1, most: int = _MOST) -> int:
        """A count that must be there, of ``least`` to ``most``."""
        value = self.get(key)
        if value is None:
            self.refuse(key, "is missing")
        if type(value) is not int or not least <= value <= most:
            self.refuse(key, f"is {_shown(value)}, not a count of {least} to {most}")
        return value

    def size_or(self, key: str, default: int, least: int = 1) -> int:
        """A count that may be absent."""
        return default if self.get(key) is None else self.size(key, least)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0; ``default`` None: it must be there."""
        value = self.get(key)
        if value is None:
            if default is None:
                self.refuse(key, "is missing")
            return default
        if type(value) not in (int, float) or not 0 < value < math.inf:
            self.refuse(key, f"is {_shown(value)}, not a number above 0")
        return float(value)

    def flag(self, key: str, default: bool | None) -> bool:
        """True or false; ``default`` None: it must be there."""
        value = self.get(key)
        if value is None:
            if default is None:
                self.refuse(key, "is missing")
            return default
        if not isinstance(value, bool):
            self.refuse(key, f"is {_shown(value)}, not true or false")
        return value

    def layers(self, key: str, count: int) -> list[int]:
        """Numbers of layers, ascending; none where the key is absent."""
        value = self.get(key)
        if value is None:
            return []
        good = isinstance(value, list) and all(type(n) is int and 0 <= n < count for n in value)
        if not good:
            self.refuse(key, f"is {_shown(value)}, not a list of layers of 0 to {count - 1}")
        return sorted(set(value))

    def only(self, key: str, wanted: Any, what: str) -> None:
        """Refuse any other value than ``wanted``, which an absent key stands for."""
        value = self.get(key)
        if value is not None and (type(value) is not type(wanted) or value != wanted):
            self.refuse(
                key,
                f"is {_shown(value)}: {what}",
                f"parity runs models with {key} {_shown(wanted)} only",
            )


def _shown(value: Any) -> str:
    """A JSON value as JSON writes it, cut where it is long."""
    words = {True: "true", False: "false"}
    text = words[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
