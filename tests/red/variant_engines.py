"""Engines that give a variant's name another meaning: the variant table must notice each."""

from __future__ import annotations

from dataclasses import replace

from parity.protocol import EngineSettings
from parity_cpu.engine import Engine


class Deaf(Engine):
    """Takes every variant and computes the exact tier."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(replace(settings, variants=frozenset()))


class Mistaken(Engine):
    """Computes router_tree where scale_assoc is asked for."""

    def __init__(self, settings: EngineSettings) -> None:
        swap = {"scale_assoc": "router_tree"}
        names = frozenset(swap.get(name, name) for name in settings.variants)
        super().__init__(replace(settings, variants=names))


class Leaking(Engine):
    """Changes the products too when two_pass is asked for."""

    def __init__(self, settings: EngineSettings) -> None:
        added = {"fma"} if "two_pass" in settings.variants else set()
        super().__init__(replace(settings, variants=settings.variants | added))
