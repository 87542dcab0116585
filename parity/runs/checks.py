"""Several claims and what became of each: what a run of probes or of promises reports.

Presenters of such a run come through the entry-point group ``parity.check_reports``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from parity.status import Verdict

if TYPE_CHECKING:
    from parity.presenting import Options
    from parity.runs.probe import Found


@dataclass(frozen=True)
class Check:
    """One claim. ``said``: what became of it, in one line; ``details``: more lines; ``first``: the
    key where it fails first; ``compared``: keys behind it. ``reproduce``: the line that makes a
    failed one again."""

    name: str
    verdict: Verdict
    said: str
    details: tuple[str, ...] = ()
    first: str | None = None
    compared: int = 0
    reproduce: str = ""


@dataclass(frozen=True)
class CheckRun:
    """All claims of one run. ``verdict``: of the whole, which decides the exit status; ``word``:
    what it is called where that is another word. ``records``: the objects of its JSON file, from
    which all else was made."""

    name: str
    verdict: Verdict
    said: str
    checks: tuple[Check, ...]
    reproduce: str
    facts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    word: str = ""
    records: tuple[Mapping[str, Any], ...] = ()

    @property
    def called(self) -> str:
        """The verdict in capitals, ``NOT RUN``, or the run's own word."""
        return self.word or self.verdict.replace("_", " ").upper()


class CheckPresenter(Protocol):
    """One report format for a ``CheckRun``."""

    name: str

    def write(self, run: CheckRun, stream: TextIO, options: Options) -> None:
        """Write the whole report of ``run`` to ``stream``. Decides nothing."""


def not_run(name: str, reason: Sequence[str], reproduce: str) -> CheckRun:
    """A run that could not be made. ``reason``: why, then what to do next."""
    said, *details = reason
    check = Check(name, Verdict.NOT_RUN, said, tuple(details))
    return CheckRun(name, Verdict.NOT_RUN, said, (check,), reproduce)


def of_probes(
    found: Sequence[Found], lines: Sequence[str], reproduce: str, seconds: float
) -> CheckRun:
    """What probes found. ``lines``: of each the line that makes it again.

    The run is told by the probe with the worst verdict.
    """
    from parity.runs.probe import worst

    checks = tuple(_of_probe(one, line) for one, line in zip(found, lines, strict=True))
    verdict = worst([one.verdict for one in found])
    telling = next((check for check in checks if check.verdict is verdict), checks[0])
    names = " and ".join(check.name for check in checks)
    records = tuple(one.record() for one in found)
    return CheckRun(
        names, verdict, telling.said, checks, reproduce, seconds=seconds, records=records
    )


def _of_probe(found: Found, line: str) -> Check:
    facts = (f"{label}  {text}" for label, text in found.facts)
    details = (*found.lines, *found.table, *facts)
    said = found.headline
    if found.first is not None and found.first not in said:
        said += f"; first key {found.first}"
    return Check(found.name, found.verdict, said, details, found.first, found.compared, line)
