"""What ``parity order`` found, as data with a versioned JSON form; presenters read it.

One row for each batch size M, which of them share a tree, where two trees part, and whether the
bits say the same. Whole orders stand in it as in an order file (``parity.order.file``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TextIO

from parity.errors import InputError
from parity.kinds import misfit
from parity.order.answer import Stage
from parity.presenting import Options
from parity.status import ExitStatus

FORMAT = "parity-order-table"
VERSION = 1
TREE = "tree"  # the only green answer


@dataclass(frozen=True)
class Row:
    """One batch size. ``verdict``: an answer's (``tree``, ``no tree``, ``tree, not explained``).
    ``tree``: number of its order among the different ones, from 1 in the order of M; 0 where there
    is none. ``words``: the order in one line; ``name``: of the contract's order or the variant that
    it is, or empty. ``evidence``: what speaks for the verdict, in words. ``order``: the order as
    plain data, None where no tree was found. ``key``: what it holds for. ``stages``: what each
    stage took of the probes and seconds; "reveal" is the first reveal alone."""

    M: int
    verdict: str
    tree: int
    digest: str
    words: str
    name: str
    probes: int
    calls: int
    seconds: float
    evidence: list[str]
    key: dict[str, str]
    order: dict[str, Any] | None = None
    stages: dict[str, Stage] = field(default_factory=dict)


@dataclass(frozen=True)
class Bits:
    """Outputs of two batch sizes on the same inputs. ``same``: they have one order; then every
    output must be equal, else at least one must not. ``example``: the first that differs."""

    ref: int
    dut: int
    same: bool
    outputs: int
    unlike: int
    example: str

    @property
    def agrees(self) -> bool:
        """Whether the bits say what the orders say; nothing compared says nothing."""
        return self.outputs > 0 and self.same == (self.unlike == 0)


@dataclass(frozen=True)
class OrderTable:
    """An op at one shape, over batch sizes. ``partings``: two trees' first difference, in words.
    ``written``: order files and loops; ``notes``: which of those asked for are not there, and why.
    ``seconds``: all of it."""

    op: str
    K: int
    N: int
    dtype: str
    device: str
    terms: str
    rows: list[Row]
    partings: list[str] = field(default_factory=list)
    bits: list[Bits] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reproduce: str = ""
    seconds: float = 0.0

    @property
    def green(self) -> bool:
        """Whether each size has a tree, and the bits of all pairs agree with the trees."""
        trees = bool(self.rows) and all(row.verdict == TREE for row in self.rows)
        return trees and all(one.agrees for one in self.bits)

    @property
    def exit_status(self) -> ExitStatus:
        """0 only where all is a tree."""
        return ExitStatus.SAME if self.green else ExitStatus.DIVERGED

    @property
    def trees(self) -> list[Row]:
        """The first row of each different order."""
        found = {row.tree: row for row in reversed(self.rows) if row.tree}
        return [found[number] for number in sorted(found)]

    def sizes_of(self, tree: int) -> list[int]:
        """The batch sizes that share an order."""
        return [row.M for row in self.rows if row.tree == tree]

    @property
    def key(self) -> list[tuple[str, str]]:
        """What the orders of all M hold for, label and text."""
        return [(label, texts[0]) for label, texts in self._keys() if len(set(texts)) == 1]

    @property
    def own_keys(self) -> list[tuple[str, str]]:
        """What of it is another at each M."""
        parted = [(label, texts) for label, texts in self._keys() if len(set(texts)) > 1]
        return [
            (f"{label}, M = {row.M}", text)
            for label, texts in parted
            for row, text in zip(self.rows, texts, strict=True)
        ]

    def _keys(self) -> list[tuple[str, list[str]]]:
        labels = dict.fromkeys(label for row in self.rows for label in row.key)
        return [(label, [row.key.get(label, "") for row in self.rows]) for label in labels]

    def to_json(self) -> str:
        """Versioned JSON text (UTF-8, one object)."""
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(body, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_plain(cls, body: dict[str, Any], where: str) -> OrderTable:
        """From the object that ``to_json`` writes; InputError naming ``where`` for any other."""
        given = {name: value for name, value in body.items() if name not in ("format", "version")}
        if body.get("version") != VERSION:
            raise InputError(
                f"{where}: version {body.get('version')} of {FORMAT}, this parity reads {VERSION}",
                "render it with the parity that wrote it",
            )
        try:
            given["rows"] = [_row(row) for row in given["rows"]]
            given["bits"] = [Bits(**one) for one in given["bits"]]
            found = cls(**given)
        except (AttributeError, KeyError, TypeError) as error:
            raise _damaged(where, str(error)) from error
        wrong = misfit(found, cls)
        if wrong is not None:
            raise _damaged(where, f"{wrong or 'it'} is of another kind")
        return found


def _row(plain: dict[str, Any]) -> Row:
    stages = {name: Stage(**stage) for name, stage in plain.get("stages", {}).items()}
    return Row(**{**plain, "stages": stages})


class OrderPresenter(Protocol):
    """One report format of the group ``parity.order_reports``. Computes nothing."""

    name: str

    def write(self, found: OrderTable, stream: TextIO, options: Options) -> None:
        """Write the whole report."""
        ...


def read_table(text: str, where: str) -> OrderTable | None:
    """The table in a JSON text, or None where it is of another format; InputError for a damaged
    one."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        return None
    return OrderTable.from_plain(body, where)


def sizes_text(sizes: Sequence[int]) -> str:
    """``1, 8, 64``."""
    return ", ".join(f"{size:,}" for size in sizes)


def _damaged(where: str, problem: str) -> InputError:
    return InputError(f"{where}: damaged: {problem}", "run the command again")
