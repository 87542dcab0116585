"""Results that are no divergence tree, read from their JSON files and reported again.

Each kind of file is told by its ``format``; what it holds becomes claims by the same function as
when the command ran, so a report made again says what the first one said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.rerunning import rerun
from parity.errors import InputError

if TYPE_CHECKING:
    from parity.runs.checks import CheckRun

Record = Mapping[str, Any]


def saved_checks(path: Path) -> CheckRun | None:
    """What a JSON file of probes, promises, a ladder, a gate or a selftest holds; None for any
    other file. Raises InputError for one that is damaged or of another version."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # whoever reads trees says what is wrong
    records = body if isinstance(body, list) else [body]
    formats = [one.get("format") if isinstance(one, dict) else None for one in records]
    read = _READERS.get(str(formats[0])) if formats else None
    if read is None or any(name != formats[0] for name in formats):
        return None
    try:
        return read(records, str(path))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        problem = f"{path}: damaged: a field is missing, or a value of another kind"
        raise InputError(problem, "run the command again") from error


def _probes(records: list[Any], where: str) -> CheckRun:
    from parity.cli.probing import checks_of
    from parity.runs.probe import Found

    return checks_of([Found.of_record(record, where) for record in records])


def _conformance(records: list[Any], where: str) -> CheckRun:
    from parity.cli.conforming import VERSION, checks_of

    return checks_of(_one(records, where, VERSION, VERSION))


def _selftest(records: list[Any], where: str) -> CheckRun:
    from parity.cli.selftesting import checks_of
    from parity.selftest.planting import VERSION

    return checks_of(_one(records, where, 1, VERSION))


def _ladder(records: list[Any], where: str) -> CheckRun:
    from parity.cli.laddering import checks_of
    from parity.runs.ladder import VERSION

    return checks_of(_one(records, where, VERSION, VERSION))


def _gate(records: list[Any], where: str) -> CheckRun:
    from parity.cli.gate_checks import gate_checks
    from parity.gate.evidence import VERSION

    record = _one(records, where, VERSION, VERSION)
    return gate_checks(record, rerun(record["command"]))


_READERS: dict[str, Callable[[list[Any], str], CheckRun]] = {
    "parity-probe": _probes,
    "parity-conformance": _conformance,
    "parity-selftest": _selftest,
    "parity-ladder": _ladder,
    "parity-gate": _gate,
}


def _one(records: list[Any], where: str, oldest: int, newest: int) -> Record:
    """The one object of a file, of a version that is known; else InputError."""
    record: Record = records[0]
    version = record["version"]
    if len(records) > 1 or version not in range(oldest, newest + 1):
        known = str(newest) if oldest == newest else f"{oldest} to {newest}"
        raise InputError(
            f"{where}: version {version} of {record['format']}, this parity reads {known}",
            "render it with the parity that wrote it",
        )
    return record
