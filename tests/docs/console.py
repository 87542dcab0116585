"""Run the console blocks of a Markdown page and compare what they print with what the page shows.

A fence opened by ```console run is run, one opened by ```console is not. In a block a line that
starts with "$ " is a command (a trailing backslash continues it), the lines after it are its
output. Output lines must appear in this order, others may stand between them; "..." in a line
matches anything, a line of "..." alone says that lines are left out. `exit=N` after `run` gives
the exit status of every command in the block, 0 if it is not there.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 300  # a command in a page that takes longer does not belong there
FENCE = re.compile(r"^```(?P<info>.*)$")
EXIT = re.compile(r"\bexit=(\d+)\b")


@dataclass(frozen=True)
class Command:
    """One command of a page, with what the page promises about it."""

    page: str
    line: int
    text: str
    output: tuple[str, ...]
    status: int


def commands(page: Path) -> list[Command]:
    """Return the commands of a page's runnable blocks, in order.

    Raises ValueError for a runnable block that does not start with a command.
    """
    found: list[Command] = []
    for info, start, lines in fences(page.read_text(encoding="utf-8")):
        words = info.split()
        if words[:2] == ["console", "run"]:
            status = EXIT.search(info)
            found += _block(page.name, start, lines, int(status[1]) if status else 0)
    return found


def fences(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield info string, number of the first inner line, and inner lines of each fenced block.

    Raises ValueError for a block that is not closed.
    """
    info, start, inner = "", 0, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence is None:
            inner.append(line)
        elif start:
            yield info, start, inner
            start = 0
        else:
            info, start, inner = fence["info"], number + 1, []
    if start:
        raise ValueError(f"line {start - 1}: this fence is not closed")


def _block(page: str, start: int, lines: list[str], status: int) -> list[Command]:
    if not lines or not lines[0].startswith("$ "):
        raise ValueError(f"{page}:{start}: a runnable block starts with '$ '")
    heads = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    found = []
    for head, after in zip(heads, [*heads[1:], len(lines)], strict=True):
        end = head
        while lines[end].endswith("\\"):
            end += 1
        text = "\n".join(lines[head : end + 1]).removeprefix("$ ")
        output = tuple(line.rstrip() for line in lines[end + 1 : after])
        found.append(Command(page, start + head, text, output, status))
    return found


def run(command: Command, folder: Path) -> list[str]:
    """Run one command in `folder`; return one line for each broken promise."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", command.text],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    problems = []
    if done.returncode != command.status:
        problems.append(f"ended {done.returncode}, the page says {command.status}")
    missing = first_missing(command.output, done.stdout.splitlines())
    if missing is not None:
        problems.append(f"does not print (here): {missing}")
    if problems:
        problems.append(f"printed:\n{done.stdout}")
    return [f"{command.page}:{command.line}: `{command.text}` {line}" for line in problems]


def first_missing(shown: tuple[str, ...], printed: list[str]) -> str | None:
    """Return the first shown line that is not among the printed ones in order, or None."""
    rest = iter(line.rstrip() for line in printed)
    for line in shown:
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        if line not in ("", "...") and not any(pattern.fullmatch(other) for other in rest):
            return line
    return None
