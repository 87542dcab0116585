"""``parity engines``: what is installed."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from parity.cli.reporting import write_lines
from parity.errors import InputError, ParityBug
from parity.registry import ENGINES, INSTALL, Plugin, checked_engine, plugins

WIDTH = 80


def run_engines(json_path: str | None) -> int:
    """Run ``parity engines``; an engine that cannot be loaded is listed with the reason."""
    found = plugins(ENGINES)
    if not found:
        raise InputError("no engine is installed", INSTALL)
    rows = [describe(plugin) for plugin in found.values()]
    if json_path is not None:
        write_lines(
            [json.dumps({"format": "parity-engines", "version": 1, "engines": rows})], json_path
        )
        return 0
    write_lines([line for row in rows for line in _lines(row)], "-")
    return 0


def describe(plugin: Plugin) -> dict[str, Any]:
    """One engine: name, distribution, tiers, variants, capabilities, or why it cannot load."""
    row: dict[str, Any] = {"name": plugin.name, "distribution": plugin.distribution}
    try:
        engine = checked_engine(plugin.load(), f"{plugin.distribution}: engine {plugin.name}")
    except (InputError, ParityBug) as error:
        return {**row, "problem": str(error)}
    return {
        **row,
        "version": engine.version,
        "tiers": list(engine.tiers),
        "variants": list(engine.variants),
        "capabilities": sorted(engine.capabilities),
    }


def _lines(row: dict[str, Any]) -> list[str]:
    name = f"{row['name']:<6}"
    if "problem" in row:
        return [f"{name}  cannot be loaded: {row['problem']}"]
    facts = (
        ("tiers", row["tiers"]),
        ("variants", row["variants"]),
        ("capabilities", row["capabilities"]),
    )
    lines = [f"{name}  {row['distribution']} {row['version']}"]
    for label, values in facts:
        lines += _folded(f"        {label:<12}  ", ", ".join(values) or "none")
    return lines


def _folded(label: str, text: str) -> list[str]:
    """``text`` after its label, folded at blanks to 80 columns; no word is cut."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
