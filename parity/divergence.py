"""What the public functions return: a verdict that can be asked, shown, saved and insisted on."""

from __future__ import annotations

import html
import io
import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from parity.errors import InputError, NotRunError
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Counts, Elements, Tree

if TYPE_CHECKING:
    import pandas as pd

    from parity.runs.probe import Found

SUFFIXES = {".json": "json", ".csv": "csv", ".html": "html", ".xml": "junit", ".md": "markdown"}
SUFFIXES |= {".txt": "console"}
_WIDTH = 100  # columns of the text in a notebook


class DivergedError(AssertionError):
    """A result that is not the same where the same was insisted on.

    Cause: ``raise_for_status`` of a diverged or unstable result. ``result``: that result.
    """

    def __init__(self, message: str, result: Divergence | ProbeResult) -> None:
        super().__init__(message)
        self.result = result


class _Result:
    """What both kinds of result answer alike."""

    @property
    def verdict(self) -> Verdict:
        """``same``, ``diverged``, ``unstable`` (a side differs from itself) or ``not_run``."""
        raise NotImplementedError

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status that the command line ends with: 0 same at the level asked for, 1
        diverged or unstable, 3 not run."""
        raise NotImplementedError

    @property
    def same(self) -> bool:
        """Whether every key was compared and is equal: dtype, shape and bytes."""
        return self.verdict is Verdict.SAME

    @property
    def diverged(self) -> bool:
        """Whether a difference was found. Not the opposite of ``same``: not_run is neither."""
        return self.verdict is Verdict.DIVERGED

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is neither true nor false: ask .same or .diverged"
        )


class Divergence(_Result):
    """One comparison. ``tree``: everything that was found (``parity.tree.Tree``)."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @property
    def verdict(self) -> Verdict:
        """``same``, ``diverged``, ``unstable`` (a side differs from itself) or ``not_run``."""
        return self.tree.verdict

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status that the command line ends with: 0 same at the level asked for, 1
        diverged or unstable, 3 not run."""
        from parity.comparison.compare import exit_status

        return exit_status(self.tree)

    @property
    def same(self) -> bool:
        """Whether every key was compared and is equal: dtype, shape and bytes. False for sides of
        different arithmetic, which ``exit_status`` judges at level greedy."""
        return self.verdict is Verdict.SAME and self.level is Level.BIT

    @property
    def first(self) -> str | None:
        """The first key in dataflow order that differs, ``t33_l7_attn``, or None."""
        return self.tree.first

    @property
    def level(self) -> Level:
        """How far the sides agree: ``bit``, ``logits``, ``greedy`` or ``none``."""
        return self.tree.level

    @property
    def counts(self) -> Counts:
        """Keys of each side, and how many are the same, differ, are missing, extra or not
        comparable."""
        return self.tree.counts

    @property
    def elements(self) -> Elements | None:
        """The elements of the first key that differ, where both sides hold values; else None."""
        return self.tree.elements

    @property
    def reason(self) -> str:
        """Why: of a run that is not_run or unstable, and of some that diverged; else ""."""
        return self.tree.reason

    @property
    def notes(self) -> list[str]:
        """Remarks that decide nothing: other headers, line order, emulated sides."""
        return self.tree.notes

    def to_json(self) -> str:
        """Versioned JSON text, as ``--json`` writes it and ``parity report`` reads it."""
        return self.tree.to_json()

    @classmethod
    def from_json(cls, text: str) -> Divergence:
        """A result read back from ``to_json``. Raises InputError for any other text."""
        return cls(Tree.from_json(text))

    def to_frame(self) -> pd.DataFrame:
        """One row a key, in dataflow order.

        Columns: ``segment``, ``key``, ``pos`` (Int64), ``layer`` (Int64), ``field``, ``state``
        ("same", "differs", "missing", "extra", "not comparable"), ``cause``, ``source``,
        ``ref_hash``, ``dut_hash`` (16 hexadecimal digits), ``ref_dtype``, ``dut_dtype``,
        ``ref_shape``, ``dut_shape`` ("[4,32]"), ``ref_nonfinite``, ``dut_nonfinite``. All but the
        numbers ``pos`` and ``layer`` are text, "" where there is nothing to say; those are <NA>
        then. Of more than 100,000 keys those that are the same are left out, but for the first
        one's step.
        """
        found: pd.DataFrame = _report("csv").key_frame(self.tree)
        return found

    def elements_frame(self) -> pd.DataFrame:
        """One row for each element that ``elements`` lists, in C order; none where it is None.

        Columns: ``key``, ``index`` (tuple of int), ``ref_hex``, ``dut_hex``, ``ref_value``,
        ``dut_value`` (text, so that every bit shows), ``ulp`` (signed; Python int, None where one
        side is NaN or the zeros differ in sign), ``kind`` ("value", "zero sign", "NaN payload",
        "NaN in ref", "NaN in dut", "infinity").
        """
        found: pd.DataFrame = _report("csv").element_frame(self.tree)
        return found

    def save(self, path: str | os.PathLike[str], format: str = "") -> None:
        """Write a report. ``format``: ``json``, ``csv``, ``html``, ``junit``, ``markdown``,
        ``console`` or one of a plug-in; by default by suffix (.json .csv .html .xml .md .txt).

        The file appears whole or not at all, in place of one of that name. Raises InputError for an
        unknown format and a path that cannot be written.
        """
        from parity.presenting import Options, write_report

        name = format or SUFFIXES.get(Path(path).suffix, "")
        if not name:
            raise InputError(
                f"{os.fspath(path)}: its suffix names no format",
                f"give format=, or one of {' '.join(SUFFIXES)}",
            )
        write_report(_report(name)(), self.tree, os.fspath(path), Options(color=False))

    def raise_for_status(self) -> None:
        """Raise DivergedError (an AssertionError) where ``exit_status`` is 1, NotRunError where it
        is 3; a result that is the same at the level asked for passes."""
        if self.exit_status is ExitStatus.NOT_RUN:
            raise NotRunError(self.reason or "nothing was compared", "look at .notes and .counts")
        if self.exit_status is not ExitStatus.SAME:
            raise DivergedError(str(self), self)

    def __str__(self) -> str:
        """The report of the command line, as text."""
        from parity.presenting import Options

        stream = io.StringIO()
        _report("console")().write(self.tree, stream, Options(width=_WIDTH, color=False))
        return stream.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        counts = self.counts
        parts = [str(self.verdict)]
        if self.first is not None:
            parts.append(f"first at {self.first}")
        parts.append(f"{counts.same:,} of {counts.total:,} keys same")
        parts.append(f"level {self.level}")
        return f"<Divergence {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class ProbeResult(_Result):
    """What the probes of one engine found. ``found``: one for each probe that ran."""

    def __init__(self, found: tuple[Found, ...]) -> None:
        self.found = found

    @cached_property
    def verdict(self) -> Verdict:
        """The worst of the probes: ``diverged``, ``unstable``, ``not_run``, else ``same``."""
        from parity.runs.probe import worst

        return worst([one.verdict for one in self.found])

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status that the command line ends with: 0 same, 1 diverged or unstable, 3 not
        run."""
        return self.verdict.exit_status

    @property
    def first(self) -> str | None:
        """The first key that differs, or None."""
        return next((one.first for one in self.found if one.first is not None), None)

    @property
    def compared(self) -> int:
        """How many keys were compared."""
        return sum(one.compared for one in self.found)

    @property
    def lines(self) -> list[str]:
        """The published lines, ``[ISODIFF] col=0 ndiff=0`` and so on."""
        return [line for one in self.found for line in one.lines]

    def to_json(self) -> str:
        """Versioned JSON text: a list with one object for each probe."""
        return json.dumps([json.loads(one.to_json()) for one in self.found], indent=1) + "\n"

    def raise_for_status(self) -> None:
        """Raise DivergedError (an AssertionError) where ``exit_status`` is 1, NotRunError where it
        is 3."""
        if self.verdict is Verdict.NOT_RUN:
            raise NotRunError(str(self), "parity engines lists what each engine offers")
        if self.verdict is not Verdict.SAME:
            raise DivergedError(str(self), self)

    def __str__(self) -> str:
        """One line for each probe."""
        return "\n".join(f"{one.name}: {one.verdict}: {one.headline}" for one in self.found)

    def __repr__(self) -> str:
        names = " and ".join(one.name for one in self.found)
        first = "" if self.first is None else f", first at {self.first}"
        return f"<ProbeResult {names} {self.verdict}{first}, {self.compared:,} keys compared>"


def _report(name: str) -> Any:
    """A presenter's class, through the door of every plug-in."""
    from parity.registry import REPORTS, find

    return find(REPORTS, name).load()
