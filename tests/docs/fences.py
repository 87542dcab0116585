"""The fenced blocks of a Markdown page, and which of them a test must execute.

The info string of a block is its language and then words:

    run          run the commands of a console block
    exit=N       the exit status of every command of the block, 0 without it
    file=NAME    write the block to this file, for the commands that follow on the page
    printed      a text block: what the python block before it printed
"""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
EXECUTED = ("bash", "c", "console", "python", "sh")
LISTED = ("cuda",)  # nothing here can run it: each stands in the list
SHOWN = ("ebnf", "ini", "json", "text", "toml", "xml", "yaml")  # data: parsed where a parser exists
COMMAND = re.compile(r"\$ |(parity|just|pip|pytest|python3?|sh) ")
INDENTED = re.compile(rf" {{4,}}(?:{COMMAND.pattern})")
WORDS = re.compile(r"run|printed|exit=\d+|file=[\w.-]+")


@dataclass(frozen=True)
class Fence:
    """One block. ``line``: of its first inner line. ``lines``: without the block's indent."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def where(self) -> str:
        """Page and line, as messages name the block."""
        return f"{self.page}:{self.line}"

    @property
    def text(self) -> str:
        """The block as a file holds it."""
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def name(self) -> str:
        """What the list of blocks that are not run calls it: a console block by its first command,
        without a remark; another one by language and first line."""
        first = self.lines[0] if self.lines else ""
        if self.language == "console":
            return re.split(r"\s+#", first)[0]
        return f"{self.language}: {first}"

    def option(self, name: str) -> str:
        """Return the value of ``name=VALUE``, or an empty string."""
        values = [word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")]
        return values[0] if values else ""


def fences(path: Path, page: str = "") -> list[Fence]:
    """Return the blocks of a page, in order; ``page`` is its name in messages.

    Raises ValueError for a block that is not closed, or closed by a fence of another kind.
    """
    page = page or path.name
    found: list[Fence] = []
    start, opened, inner = 0, None, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence is not None:
                start, opened, inner = number, fence, []
        elif fence is not None and fence["mark"] == opened["mark"] and not fence["info"].strip():
            found.append(_fence(page, start + 1, opened, inner))
            opened = None
        else:
            inner.append(line)
    if opened is not None:
        raise ValueError(f"{page}: line {start}: this fence is not closed")
    return found


def _fence(page: str, line: int, opened: re.Match[str], inner: list[str]) -> Fence:
    language, *words = opened["info"].split() or [""]
    lines = tuple(text.removeprefix(opened["indent"]) for text in inner)
    return Fence(page, line, language, tuple(words), lines)


def indented_commands(path: Path) -> list[str]:
    """Return the commands in blocks made by indentation alone, which nothing executes."""
    found, before, opened = [], "", False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        opened ^= FENCE.match(line) is not None
        if not opened and not before.strip() and INDENTED.match(line):
            found.append(f"{path.name}:{number}: {line.strip()}")
        before = line
    return found


def fault(fence: Fence, listed: bool) -> str:
    """Say why a block may not stand on a page, or return an empty string.

    ``listed``: it is in the list of blocks that are not run.
    """
    strange = [word for word in fence.words if not WORDS.fullmatch(word)]
    if strange:
        return f"unknown word '{strange[0]}' after the language"
    if fence.language in SHOWN:
        return _shown_fault(fence, listed)
    if fence.language not in EXECUTED + LISTED:
        return f"a block in '{fence.language}' is neither executed nor known as data"
    if "run" in fence.words and (listed or fence.language != "console"):
        return "listed as not run, and run" if listed else f"'run' after {fence.language}"
    runs = "run" in fence.words or fence.language not in ("console", *LISTED)
    return "" if runs or listed else "neither run nor listed in tests/docs/not_run.py"


def _shown_fault(fence: Fence, listed: bool) -> str:
    if listed:
        return "data is never run: it needs no place in tests/docs/not_run.py"
    command = [line for line in fence.lines if COMMAND.match(line)]
    return f"a command in a block of data: {command[0]}" if command else ""
