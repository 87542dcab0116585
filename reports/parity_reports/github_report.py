"""GitHub annotations: one workflow command a run, shown beside the job and in its summary.

A run that ends 0 is a ``notice``, one that ends 1 an ``error``, one that was not run a ``warning``:
nothing is known to be wrong, and nothing is proved. The exit status fails the job, never this.
"""

from __future__ import annotations

from typing import TextIO

from parity.comparison.compare import exit_status
from parity.presenting import Options, printable, require_consistent, write_text
from parity.runs.checks import CheckRun
from parity.status import ExitStatus
from parity.tree import Tree
from parity_reports import wording

_KINDS = {ExitStatus.SAME: "notice", ExitStatus.DIVERGED: "error", ExitStatus.NOT_RUN: "warning"}


class GithubReport:
    """Presenter ``github`` of a divergence tree."""

    name = "github"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write one annotation; no option changes it."""
        require_consistent(tree)
        word = wording.verdict_spans(tree)[0][0]
        lines = [wording.quiet_line(tree), *_sides(tree), *_again(tree.reproduce)]
        write_text(stream, annotation(exit_status(tree), f"parity {word}", lines))


class GithubChecks:
    """Presenter ``github`` of a run of probes or promises."""

    name = "github"

    def write(self, run: CheckRun, stream: TextIO, options: Options) -> None:
        """Write one annotation for the whole run."""
        status = run.verdict.exit_status
        failed = [check for check in run.checks if check.verdict.exit_status is ExitStatus.DIVERGED]
        shown = [f"{check.name}: {check.said}" for check in failed] or [run.said]
        again = next((check.reproduce for check in failed if check.reproduce), run.reproduce)
        lines = [*shown, *_again(again)]
        write_text(stream, annotation(status, f"parity {run.name} {run.called}", lines))


def annotation(status: ExitStatus, title: str, lines: list[str]) -> str:
    """One workflow command on one line. ``title``: its property; ``lines``: its text.

    Control characters are shown as escapes, so that no text can start a command of its own.
    """
    text = "\n".join(printable(line) for line in lines)
    return f"::{_KINDS[status]} title={_property(printable(title))}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _sides(tree: Tree) -> list[str]:
    sides = wording.sides(tree).items()
    told = ", ".join(f"{role} {header['spec']}" for role, header in sides if header.get("spec"))
    return [told] if told else []


def _again(reproduce: str) -> list[str]:
    return [f"reproduce: {reproduce}"] if reproduce else []
