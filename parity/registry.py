"""Plug-ins: found through entry points, checked when loaded, never imported before that."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

from parity.errors import InputError, NotRunError, ParityBug
from parity.protocol import CAPABILITIES, REQUIRED, Engine, EngineSettings

ENGINES = "parity.engines"
REPORTS = "parity.reports"
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
        except (ImportError, AttributeError) as error:
            raise ParityBug(
                f"{self.distribution}: entry point {self.name} = {self.entry_point.value} "
                f"cannot be loaded: {error}"
            ) from error


def plugins(group: str) -> dict[str, Plugin]:
    """Installed plug-ins of a group by name, in name order."""
    found = {}
    for point in metadata.entry_points(group=group):
        distribution = point.dist.name if point.dist else "unknown"
        found[point.name] = Plugin(point.name, distribution, point)
    return dict(sorted(found.items()))


def find(group: str, name: str) -> Plugin:
    """The plug-in called ``name``; raises InputError with the nearest name."""
    found = plugins(group)
    if name in found:
        return found[name]
    what = group.removeprefix("parity.").removesuffix("s")
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
    """The class behind ``module:attr``, a user's own engine."""
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module_name), attribute)
    except ImportError as error:
        raise InputError(
            f"engine {path!r}: {error}", "give an installed engine's name or module:attr"
        ) from error
    except AttributeError as error:
        raise InputError(
            f"engine {path!r}: module {module_name} has no {attribute}", "check the name"
        ) from error
    return checked_engine(found, f"engine {path}")


def checked_engine(found: Any, where: str) -> type[Engine]:
    """``found`` if it has every required member and those of its capabilities; else ParityBug."""
    needed = list(REQUIRED)
    for capability in getattr(found, "capabilities", ()):
        needed += CAPABILITIES.get(capability, ())
    missing = [member for member in needed if not hasattr(found, member)]
    if missing:
        signature = _signature(missing[0])
        raise ParityBug(f"{where} lacks {missing[0]}{signature} of the Engine Protocol")
    return found  # type: ignore[no-any-return]


def _signature(member: str) -> str:
    function = getattr(Engine, member, None)
    return str(inspect.signature(function)) if inspect.isfunction(function) else ""


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
