"""Plug-ins: found through entry points, checked when loaded, never imported before that."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, metadata
from typing import Any

from parity.errors import InputError, NotRunError, ParityBug
from parity.protocol import CAPABILITIES, PROTOCOL, REQUIRED, Engine, EngineSettings, StateEngine

ENGINES = "parity.engines"
PROBES = "parity.probes"
REPORTS = "parity.reports"
FUNCTION_GROUP = "parity.functions"
FUNCTION_REPORTS = "parity.function_reports"
SUMS = "parity.sums"
ORDER_REPORTS = "parity.order_reports"
INSTALL = "install parity first: pip install -e . (or the wheel)"


@dataclass(frozen=True)
class Plugin:
    """One entry point: its name, the distribution it comes from, and how to load it."""

    name: str
    distribution: str
    entry_point: metadata.EntryPoint

    def load(self) -> Any:
        """Import the object; ParityBug names distribution and entry point when that fails."""
        try:
            return self.entry_point.load()
        except Exception as error:  # a plug-in's module may raise anything
            raise ParityBug(
                f"{self.distribution}: entry point {self.name} = {self.entry_point.value} "
                f"cannot be loaded: {_said(error)}"
            ) from error


def plugins(group: str) -> dict[str, Plugin]:
    """Installed plug-ins of a group by name, in name order.

    Raises InputError for a name that two distributions offer: nobody could say which one ran.
    """
    return dict(_scanned(group, _places()))


def _places() -> tuple[tuple[str, int, int], ...]:
    """What decides which packages are installed: the folders of ``sys.path`` as they are now."""
    places = []
    for name in sys.path:
        with suppress(OSError):  # no such folder
            status = os.stat(name or ".")
            places.append((name, status.st_ino, status.st_mtime_ns))
    return tuple(places)


@lru_cache(maxsize=64)
def _scanned(group: str, places: tuple[tuple[str, int, int], ...]) -> dict[str, Plugin]:
    """``plugins`` in these places. All packages are read for it, so once and again only where a
    place has changed."""
    found: dict[str, Plugin] = {}
    for point in metadata.entry_points(group=group):
        distribution = point.dist.name if point.dist else "unknown"
        plugin = Plugin(point.name, distribution, point)
        other = found.setdefault(point.name, plugin)
        if other.entry_point.value != point.value:
            raise InputError(
                f"{_kind(group)} {point.name!r} comes from two packages: "
                f"{other.distribution} and {distribution}",
                "uninstall one of them",
            )
    return dict(sorted(found.items()))


def find(group: str, name: str) -> Plugin:
    """The plug-in called ``name``; raises InputError with the nearest name."""
    found = plugins(group)
    if name in found:
        return found[name]
    what = _kind(group)
    if not found:
        raise InputError(f"no {what} {name!r}; installed: none", INSTALL)
    near = difflib.get_close_matches(name, found, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"no {what} {name!r}", f"{hint}installed: {', '.join(found)}")


def engine_class(name: str) -> type[Engine]:
    """The class of an installed engine, checked against the Protocol."""
    plugin = find(ENGINES, name)
    return checked_engine(plugin.load(), f"{plugin.distribution}: engine {name}")


def foreign_engine_class(path: str) -> type[Engine]:
    """The class behind ``module:attr``, a user's own engine.

    Raises InputError: what is wrong here is the user's to mend.
    """
    found = foreign_object(path, "engine", "a class")
    refuse_newer(found, f"engine {path}")
    missing = _missing_member(found)
    if missing:
        raise InputError(
            f"engine {path} lacks {missing} of the Engine Protocol",
            f"it needs {', '.join(REQUIRED)}",
        )
    return found  # type: ignore[no-any-return]


def foreign_object(path: str, kind: str, what: str) -> Any:
    """The object behind ``module:attr``; the working folder is searched last.

    ``kind`` and ``what`` name it in messages: an ``engine`` is ``a class``. Raises InputError.
    """
    module_name, _, attribute = path.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        next_step = f"try: python -c 'import {module_name}'"
        if absent is not None and f"{module_name}.".startswith(f"{absent}."):
            next_step = "run in the folder that holds the module, or put that into PYTHONPATH"
        raise InputError(
            f"{kind} {path}: {module_name} cannot be imported: {_said(error)}", next_step
        ) from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, vars(module), 1)
        hint = f"did you mean {module_name}:{near[0]}?" if near else f"name {what} of that module"
        raise InputError(f"{kind} {path}: module {module_name} has no {attribute}", hint)
    return getattr(module, attribute)


def checked_engine(found: Any, where: str) -> type[Engine]:
    """``found`` if it has every required member and those of its capabilities; else ParityBug.

    InputError for one that was written for a newer version of the Protocol.
    """
    refuse_newer(found, where)
    missing = _missing_member(found)
    if missing:
        raise ParityBug(f"{where} lacks {missing} of the Engine Protocol")
    return found  # type: ignore[no-any-return]


def refuse_newer(found: Any, where: str) -> None:
    """Raise InputError for an engine of a version of the Protocol unknown to this parity."""
    version = getattr(found, "protocol", 1)
    if version not in range(1, PROTOCOL + 1):
        raise InputError(
            f"{where} is of version {version} of the Engine Protocol; this parity knows 1 to "
            f"{PROTOCOL}",
            "install a newer parity, or an older engine",
        )


def _missing_member(found: Any) -> str:
    """The first member, with its signature, that ``found`` lacks for what it offers, or ""."""
    needed = list(REQUIRED)
    for capability in getattr(found, "capabilities", ()):
        needed += CAPABILITIES.get(capability, ())
    missing = next((member for member in needed if not hasattr(found, member)), "")
    return f"{missing}{_signature(missing)}"


def _signature(member: str) -> str:
    function = getattr(StateEngine, member, None)
    return str(inspect.signature(function)) if inspect.isfunction(function) else ""


def _kind(group: str) -> str:
    """``engine`` for ``parity.engines``."""
    if group == FUNCTION_GROUP:
        return "implementation"
    if group == SUMS:
        return "family of sums"
    return group.removeprefix("parity.").removesuffix("s").replace("_", " ")


def _said(error: BaseException) -> str:
    """What an error says, with its kind where the text alone would not tell."""
    return str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"


def open_engine(engine: type[Engine], settings: EngineSettings, spec: str) -> Engine:
    """An engine with its tier and variants checked against what it offers."""
    if settings.tier not in engine.tiers:
        raise InputError(
            f"{spec}: engine {engine.name} has no tier {settings.tier!r}",
            f"tiers: {', '.join(engine.tiers)}",
        )
    unknown = sorted(settings.variants - set(engine.variants))
    if unknown:
        known = ", ".join(engine.variants) or "none"
        raise InputError(
            f"{spec}: engine {engine.name} has no variant {unknown[0]!r}", f"variants: {known}"
        )
    made: Engine = engine(settings)  # type: ignore[call-arg]
    return made


def require(engine: Engine, capability: str, purpose: str) -> None:
    """NotRunError when ``engine`` lacks an optional capability that ``purpose`` needs."""
    if capability not in engine.capabilities:
        raise NotRunError(
            f"{engine.name} lacks the capability {capability!r}, needed for {purpose}",
            "parity engines lists what each engine offers",
        )
