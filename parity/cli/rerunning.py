"""The line that makes a run again: the command as typed, without what writes files."""

from __future__ import annotations

import shlex
from collections.abc import Collection

# Each takes a path.
WRITES = frozenset({"--repro", "--json", "--csv", "--html", "--junit", "--markdown"})
SAYS = frozenset({"-q", "--quiet", "--github"})  # how it is told, not what is run


def rerun(typed: str) -> str:
    """The command as typed without its reports and its repro folder, which is there now and would
    be refused, and without ``-q`` and ``--github``: it may be pasted as it is."""
    return shlex.join(words_without(typed, WRITES))


def words_without(typed: str, options: Collection[str]) -> list[str]:
    """The words of a command line without ``options``, each of which has a value, and ``SAYS``."""
    kept: list[str] = []
    words = iter(shlex.split(typed))
    for word in words:
        if word in options:
            next(words, None)
        elif word.partition("=")[0] not in options and word not in SAYS:
            kept.append(word)
    return kept
