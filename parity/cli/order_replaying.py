"""``parity replay-order``: the bits of an order file, on this CPU or beside the op itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from parity.cli.reporting import write_lines
from parity.errors import InputError
from parity.presenting import STDOUT
from parity.status import ExitStatus

if TYPE_CHECKING:
    from parity.order.answer import Answer
    from parity.order.file import OrderFile

WIDTH, LABEL = 80, 11  # columns of a line, and of what stands before a fact


def run_replay_order(file: Path, *, device: str | None, seed: int, quiet: bool) -> int:
    """Run ``parity replay-order``; 0 where every row, or every probe, agrees with the file."""
    from parity.order.file import read_order

    found = read_order(file)
    if device is None:
        green, head, facts = _replayed(found)
    else:
        green, head, facts = _asked_again(found, device, seed)
    word = "same" if green else "diverged"
    if quiet:
        write_lines([f"{word}: {found.op}: {head}"], STDOUT)
    else:
        told = [line for label, text in facts for line in _folded(label, text)]
        write_lines([f"{word.upper()}  {head}", "", *told], STDOUT)
    return int(ExitStatus.SAME if green else ExitStatus.DIVERGED)


def _folded(label: str, text: str) -> list[str]:
    """A labelled fact in lines of WIDTH columns; nothing without a text."""
    lines = wrap(text, WIDTH - LABEL, break_long_words=False, break_on_hyphens=False)
    heads = [f"  {label}", *[""] * len(lines)]
    return [f"{head:<{LABEL}}{line}" for head, line in zip(heads, lines, strict=False)]


Told = tuple[bool, str, list[tuple[str, str]]]


def _replayed(found: OrderFile) -> Told:
    from parity.order.replay import replay

    done = replay(found)
    head = f"{done.rows - done.unlike:,} of {done.rows:,} rows have the recorded bits"
    return done.green, head, [("first", done.example), *_about(found)]


def _asked_again(found: OrderFile, device: str, seed: int) -> Told:
    """Certify and noise of the op in the key, on this machine."""
    from parity.order.judge import judge
    from parity.order.sums import ASKED, asked_of, open_op

    if ASKED not in found.key:
        raise InputError(
            f"{found.op}: the file does not say how its op is called", "replay it without --device"
        )
    ask, M = asked_of(found.op, found.key[ASKED])
    op = open_op(replace(ask, device=device), M)
    answer = judge(op, found.order, seed=seed)
    facts = [("evidence", line) for line in answer.contradicts]
    if answer.noise is not None and answer.noise.unlike:
        facts.append(("first", answer.noise.example))
    return answer.green, _judged(answer), [*facts, *_changed(found.key, op.key), *_about(found)]


def _judged(answer: Answer) -> str:
    if answer.green:
        return "it is this tree here too, certified and held to noise"
    noise = answer.noise
    if noise is not None and noise.unlike:
        return f"{noise.unlike:,} of {noise.rows:,} rows of noise have other bits here"
    return f"{answer.verdict} here"


def _changed(recorded: dict[str, str], here: dict[str, str]) -> list[tuple[str, str]]:
    """What of the key is another here."""
    names = [name for name in here if name in recorded and recorded[name] != here[name]]
    return [
        ("changed", f"{name}: {recorded[name]} in the file, {here[name]} here") for name in names
    ]


def _about(found: OrderFile) -> list[tuple[str, str]]:
    from parity.order.sums import ASKED
    from parity.order.words import one_line

    key = ", ".join(f"{name} {text}" for name, text in found.key.items() if name != ASKED)
    return [
        ("op", found.op),
        ("order", one_line(found.order)),
        ("digest", found.order.digest()),
        ("key", key),
        ("origin", found.origin),
    ]
