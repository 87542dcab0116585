"""Run the commands of a console block and compare what they print with what the page shows.

A line that starts with "$ " is a command (a trailing backslash continues it), the lines after it
are its output. Output lines must appear in this order, others may stand between them; "..." in a
line matches anything, a line of "..." alone says that lines are left out.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.docs.fences import Fence

LIMIT_S = 300  # a command in a page that takes longer does not belong there


@dataclass(frozen=True)
class Command:
    """One command of a page, with what the page promises about it."""

    where: str
    text: str
    output: tuple[str, ...]
    status: int


def commands(fence: Fence) -> list[Command]:
    """Return the commands of a runnable block, in order.

    Raises ValueError for a block that does not start with a command.
    """
    lines, status = fence.lines, int(fence.option("exit") or 0)
    if not fence.text.startswith("$ "):
        raise ValueError(f"{fence.where}: a runnable block starts with '$ '")
    heads = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    found = []
    for head, after in zip(heads, [*heads[1:], len(lines)], strict=True):
        end = head
        while lines[end].endswith("\\"):
            end += 1
        text = "\n".join(lines[head : end + 1]).removeprefix("$ ")
        output = tuple(line.rstrip() for line in lines[end + 1 : after])
        found.append(Command(f"{fence.page}:{fence.line + head}", text, output, status))
    return found


def run(command: Command, folder: Path) -> list[str]:
    """Run one command in `folder`; return one line for each broken promise."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", command.text],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"},
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
    return [f"{command.where}: `{command.text}` {line}" for line in problems]


def first_missing(shown: tuple[str, ...], printed: list[str]) -> str | None:
    """Return the first shown line that is not among the printed ones in order, or None."""
    rest = iter(line.rstrip() for line in printed)
    for line in shown:
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        if line not in ("", "...") and not any(pattern.fullmatch(other) for other in rest):
            return line
    return None
