"""``parity baseline list`` and ``show``, and what is said of an accepted result."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.baseline.told import DIGITS, NOT_RECORDED, headline
from parity.cli.reporting import require_writable_reports, write_lines
from parity.errors import InputError
from parity.presenting import STDOUT, printable
from parity.status import ExitStatus

if TYPE_CHECKING:
    from parity.store import Entry, Store

_COLUMNS = ("name", "entry", "accepted", "side", "model", "keys", "digest")


def run_list(folder: Path, json_path: str | None) -> int:
    """Run ``parity baseline list``: every one verified; 2 when anything was altered."""
    from parity.store import Store

    require_writable_reports(json_path)
    require_outside(folder, json_path)
    store = Store(folder)
    rows = [_listed(store, name) for name in _names(store)]
    problem = next((row["altered"] for row in rows if row["altered"]), "") or _verified(store)
    if json_path is not None:
        body = {"format": "parity-baselines", "version": 1, "baselines": rows, "altered": problem}
        write_lines([json.dumps(body, indent=1)], json_path)
    if json_path != STDOUT:
        write_lines(_table(rows) if rows else [f"no baselines in {folder}"], STDOUT)
    if problem:
        raise InputError(problem, "bring back the store as it was, from a copy")
    return int(ExitStatus.SAME)


def run_show(folder: Path, name: str, json_path: str | None) -> int:
    """Run ``parity baseline show``: everything that is recorded, and the history."""
    from parity.baseline import KIND, load
    from parity.store import Store

    require_writable_reports(json_path)
    require_outside(folder, json_path)
    store = Store(folder)
    stored = load(store, name)
    history = store.history(KIND, name)
    if json_path is not None:
        body = {
            "format": "parity-baseline",
            "version": 1,
            **asdict(stored.entry),
            "history": [_event(entry) for entry in history],
        }
        write_lines([json.dumps(body, indent=1)], json_path)
    if json_path != STDOUT:
        write_lines([*_shown(stored.entry), "", *_told(history)], STDOUT)
    return int(ExitStatus.SAME)


def require_outside(store: Path, *reports: str | None) -> None:
    """Raise InputError for a report that would stand in the store, or in the place of a part of
    it."""
    inside = os.path.realpath(store)
    for path in reports:
        if path is None or path == STDOUT:
            continue
        if os.path.realpath(path).startswith(f"{inside}{os.sep}"):
            raise InputError(f"{path}: lies in the store", "give a file outside it")


def accepted_lines(entry: Entry) -> list[str]:
    """What ``save`` and ``promote`` print."""
    lines = _pairs(headline(entry))
    return lines + [f"  changed    {printable(line)}" for line in entry.record["changed"]]


# --- one baseline ---------------------------------------------------------------------------------


def _shown(entry: Entry) -> list[str]:
    record = entry.record
    header = {name: text for name, text in record["header"].items() if name not in ("tokens",)}
    settings = record["settings"] or {}
    lines = _pairs(headline(entry) | {"created": record["created"], "command": record["command"]})
    lines += ["", "recorded", *_pairs({**header, "packages": record["packages"]})]
    lines += ["", "input", *_pairs({k: str(v) or NOT_RECORDED for k, v in record["input"].items()})]
    lines += ["", "settings", *_pairs({k: str(v) for k, v in settings.items() if v})]
    objects = {part: address or "none" for part, address in record["objects"].items()}
    return [*lines, "", "objects", *_pairs({"record": entry.address, **objects})]


def _told(history: list[Entry]) -> list[str]:
    """One line an entry, with what it changed."""
    lines = ["history"]
    for entry in history:
        lines.append(f"  {entry.seq}  {entry.created}  {entry.action}  {entry.digest[:DIGITS]}")
        lines += [f"       {printable(line)}" for line in entry.record["changed"]]
    return lines


def _event(entry: Entry) -> dict[str, Any]:
    names = ("seq", "created", "action", "digest", "address", "previous")
    event = {name: getattr(entry, name) for name in names}
    return {**event, "command": entry.record["command"], "changed": entry.record["changed"]}


def _pairs(facts: dict[str, str]) -> list[str]:
    return [f"  {name:10} {printable(text)}" for name, text in facts.items()]


# --- all of them ----------------------------------------------------------------------------------


def _names(store: Store) -> list[str]:
    from parity.baseline import KIND

    return store.names(KIND)


def _listed(store: Store, name: str) -> dict[str, Any]:
    """One row; what was altered stands in it."""
    from parity.baseline import load

    try:
        entry = load(store, name).entry
    except InputError as error:
        return {"name": name, "altered": error.message}
    record = entry.record
    return {
        "name": name,
        "altered": "",
        "entry": entry.seq,
        "accepted": entry.created,
        "side": record["spec"],
        "model": record["header"].get("model", NOT_RECORDED),
        "keys": record["keys"],
        "digest": entry.digest,
    }


def _verified(store: Store) -> str:
    """What is wrong with a part of the store that no baseline needs, or ""."""
    try:
        store.verify()
    except InputError as error:
        return error.message
    return ""


def _table(rows: list[dict[str, Any]]) -> list[str]:
    cells = [list(_COLUMNS), *(_cells(row) for row in rows)]
    whole = [line for line in cells if len(line) > 2]
    widths = [max(len(line[at]) for line in whole) for at in range(len(_COLUMNS))]
    widths[0] = max(len(line[0]) for line in cells)
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        for line in cells
    )
    return [line.rstrip() for line in padded]


def _cells(row: dict[str, Any]) -> list[str]:
    if row["altered"]:
        return [printable(row["name"]), "ALTERED"]
    shown = {**row, "keys": f"{row['keys']:,}", "digest": row["digest"][:DIGITS]}
    return [printable(str(shown[column])) for column in _COLUMNS]
