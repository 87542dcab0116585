"""GitHub annotations: one escaped workflow command a run, coloured as the exit status is."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import unquote

import pytest

from parity.comparison.compare import exit_status
from parity.errors import ParityBug
from parity.presenting import Options
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Tree
from parity_reports.github_report import GithubChecks, GithubReport, annotation
from tests.reports import trees
from tests.reports.check_runs import KEY, RUNS
from tests.reports.test_console_hostile import HOSTILE, hostile_tree

COMMAND = re.compile(r"::(notice|warning|error) title=([^:,\r\n]*)::([^\r\n]*)\n")
KINDS = {ExitStatus.SAME: "notice", ExitStatus.DIVERGED: "error", ExitStatus.NOT_RUN: "warning"}
each_tree = pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))


def parsed(text: str) -> tuple[str, str, list[str]]:
    """(kind, title, lines of text) as the runner of GitHub reads them."""
    found = COMMAND.fullmatch(text)
    assert found is not None, text
    return found[1], unquote(found[2]), unquote(found[3]).split("\n")


def written(tree: Tree) -> str:
    stream = io.StringIO()
    GithubReport().write(tree, stream, Options())
    return stream.getvalue()


def written_run(name: str) -> str:
    stream = io.StringIO()
    GithubChecks().write(RUNS[name], stream, Options())
    return stream.getvalue()


@each_tree
@pytest.mark.parametrize("asked", list(Level))
def test_the_kind_is_that_of_the_exit_status(build: Callable[[], Tree], asked: Level) -> None:
    tree = build()
    if tree.verdict is not Verdict.SAME or asked is tree.level:
        tree = replace(tree, level_asked=asked)
    assert parsed(written(tree))[0] == KINDS[exit_status(tree)]


def test_red_names_verdict_key_sides_and_the_rerun() -> None:
    kind, title, lines = parsed(written(trees.red()))
    assert (kind, title) == ("error", "parity DIVERGED")
    assert lines[0].startswith(f"diverged: {trees.FIRST}")
    assert lines[1].startswith("ref ")
    assert ", dut " in lines[1]
    assert lines[2] == f"reproduce: {trees.COMMAND}"
    assert len(lines) == 3


def test_green_has_no_error() -> None:
    text = written(trees.green())
    assert "::error" not in text
    assert parsed(text)[:2] == ("notice", "parity SAME")


def test_not_run_is_a_warning_with_the_reason() -> None:
    kind, title, lines = parsed(written(trees.not_run()))
    assert (kind, title) == ("warning", "parity NOT RUN")
    assert lines[0].startswith(f"not run: {trees.not_run().reason.splitlines()[0]}")


def test_runs_of_probes() -> None:
    kind, title, lines = parsed(written_run("red and green"))
    assert (kind, title) == ("error", "parity isodiff and rollback DIVERGED")
    assert lines == [
        f"isodiff: M = 3, pos 33; the keys are equal; first key {KEY}",
        "reproduce: parity isodiff --m 3",
    ]
    assert parsed(written_run("green"))[0] == "notice"
    assert parsed(written_run("unstable"))[:2] == ("error", "parity isodiff UNSTABLE")
    assert parsed(written_run("not run and green"))[0] == "warning"
    assert parsed(written_run("no device"))[1:] == (
        "parity isodiff NOT RUN",
        ["no device", "reproduce: parity isodiff"],
    )


def test_the_escapes_of_the_runner() -> None:
    told = annotation(ExitStatus.DIVERGED, "a:b,c%", ["x%0A::error::y", "z"])
    assert told == "::error title=a%3Ab%2Cc%25::x%250A::error::y%0Az\n"


@pytest.mark.parametrize("word", [*HOSTILE, "a\r\n::error::planted", "\x00\u2028::notice::", "%0A"])
def test_red_hostile_words_start_no_command(word: str) -> None:
    text = written(hostile_tree(word))
    assert COMMAND.fullmatch(text), text
    assert text.count("\n") == 1


def test_a_tree_that_contradicts_itself_is_not_shown() -> None:
    with pytest.raises(ParityBug, match="contradicts itself"):
        written(replace(trees.red(), verdict=Verdict.SAME, level=Level.BIT))
