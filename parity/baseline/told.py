"""What is said of an accepted result: by ``parity baseline`` and by the reports of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.store import Entry

NOT_RECORDED = "not recorded"
UNTOLD = ", weights not told"
DIGITS = 12  # of a digest that people read


def headline(entry: Entry) -> dict[str, str]:
    """What was accepted, label to text."""
    record = entry.record
    header = record["header"]
    engine = " ".join(header.get(name, "") for name in ("engine", "version", "tier")).strip()
    objects = record["objects"]
    return {
        "accepted": f"{entry.name}, entry {entry.seq}, {entry.digest[:DIGITS]}",
        "side": f"{record['spec']}  {engine}".strip(),
        "model": _model(header),
        "tokens": f"from {record['input']['from']}",
        "keys": f"{record['keys']:,}",
        "states": NOT_RECORDED if objects.get("states") is None else "digests of every row",
        "tensors": f"{len(record['tensors']):,} kept" if record["tensors"] else "none kept",
        "stable": _stability(record),
        "green": _evidence(record),
    }


def accepted_as(entry: Entry, changed: Sequence[tuple[str, str, str]] = ()) -> dict[str, str]:
    """All that a report tells of the ref of a check. ``changed``: what of build and machine is not
    as it was: name, before, now; a line each."""
    facts = headline(entry)
    return {
        **facts,
        "accepted": f"{entry.name}, entry {entry.seq} of {entry.created}",
        "entry": entry.digest,
        "record": entry.address,
        "command": str(entry.record["command"]),
        "changed": "\n".join(f"{name}: {old}, now {new}" for name, old, new in changed),
    }


def _model(header: Mapping[str, str]) -> str:
    if "model" not in header:
        return NOT_RECORDED
    return header["model"] + ("" if "weights" in header else UNTOLD)


def _stability(record: Mapping[str, Any]) -> str:
    found = record["stability"]
    return NOT_RECORDED if found is None else f"{found['runs']} runs alike"


def _evidence(record: Mapping[str, Any]) -> str:
    found = record["evidence"]
    if found is None:
        return f"{NOT_RECORDED} (no --ref)"
    return f"{found['keys']:,} keys the same as {found['ref']}, states {found['states']}"
