"""Which build made a result: the compiled code and the packages that a header names.

An engine's ``describe`` tells ``compiled``, the digest of the compiled code it loaded, and where
one build serves every variant also ``mask``, the variants that it asks that build for at run time.
Both are optional: of a side that does not tell them nothing is claimed (docs/provenance.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from parity import __version__

if TYPE_CHECKING:
    from parity.protocol import Engine

COMPILED, MASK, PACKAGES = "compiled", "mask", "packages"
NONE = "none"  # ``compiled`` of an engine that has run no compiled code yet
# How compiled code is entered: branches asked for, how many ops a launch does, order of threads.
_ENTRY = (MASK, "launches", "schedule")


def packages(roots: Iterable[str] = ()) -> str:
    """``parity=0.1.0 numpy=2.4.6 numba=0.68.1``: versions of parity and of the loaded ``roots``.

    The versions are those of the modules in memory; a root that is not loaded is left out.
    """
    found = {"parity": __version__}
    for root in ("numpy", *roots):
        version = getattr(sys.modules.get(root), "__version__", None)
        if version is not None:
            found.setdefault(root, str(version))
    return " ".join(f"{name}={version}" for name, version in found.items())


def packages_of(engine: object) -> str:
    """``packages`` of the modules that the class of ``engine`` is made of."""
    roots = (base.__module__.partition(".")[0] for base in type(engine).__mro__)
    return packages(dict.fromkeys(roots))


def engine_facts(engine: Engine) -> dict[str, str]:
    """What a record without a dump says of the engine it tells of: names as in a dump's header.

    Asked after the run: an engine that compiles while it runs knows only then what it loaded.
    """
    settings = getattr(engine, "settings", None)
    return {
        "engine": engine.name,
        "version": engine.version,
        "tier": settings.tier if settings else engine.tiers[0],
        "variants": ",".join(sorted(settings.variants) if settings else ()) or NONE,
        PACKAGES: packages_of(engine),
        **engine.describe(),
    }


def tells_code(header: Mapping[str, str]) -> bool:
    """Whether a header names the compiled code of its side."""
    return header.get(COMPILED, NONE) != NONE


def same_code(ref: Mapping[str, str], dut: Mapping[str, str]) -> bool:
    """Whether two headers tell of the same compiled code, entered in the same way.

    False where a side does not tell its code: nothing is known then.
    """
    return tells_code(ref) and all(ref.get(name) == dut.get(name) for name in (COMPILED, *_ENTRY))


def code_text(header: Mapping[str, str]) -> str:
    """``01f6f38dc3b6300d mask 0020``: the code of a side and how it was entered; "" unknown."""
    if not tells_code(header):
        return ""
    parts = [header[COMPILED], *(f"{name} {header[name]}" for name in _ENTRY if name in header)]
    return " ".join(parts)


def code_notes(ref: Mapping[str, str], dut: Mapping[str, str], *, equal: bool) -> list[str]:
    """What an A/B of two sides must say of their compiled code. ``equal``: no bit differs.

    A comparison of code with itself switches nothing; one of two settings of one engine that shows
    no difference says whether they are two codes.
    """
    if same_code(ref, dut):
        found = "this switches nothing in it" if equal else "what differs comes from elsewhere"
        told = f"ref and dut ran the same compiled code ({ref[COMPILED]}) in the same way"
        return [f"{told}: {found}"]
    if not equal or not _settings_alone_differ(ref, dut):
        return []
    if not (tells_code(ref) and tells_code(dut)):
        side = "dut" if tells_code(ref) else "ref"
        return [f"whether the compiled code differs is not known: the {side} tells no digest of it"]
    if ref[COMPILED] == dut[COMPILED]:
        ways = ", ".join(
            f"{name} {ref.get(name, NONE)} against {dut.get(name, NONE)}"
            for name in _ENTRY
            if ref.get(name) != dut.get(name)
        )
        return [f"ref and dut ran one build ({ref[COMPILED]}), {ways}: no bit shows it"]
    return [f"the compiled code differs (ref {ref[COMPILED]} dut {dut[COMPILED]}): no bit shows it"]


def _settings_alone_differ(ref: Mapping[str, str], dut: Mapping[str, str]) -> bool:
    """Whether two sides are one engine under two settings."""
    changed = any(ref.get(name) != dut.get(name) for name in ("tier", "variants", *_ENTRY))
    return changed and all(ref.get(name) == dut.get(name) for name in ("engine", "version"))
