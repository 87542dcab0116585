"""Execute the blocks of one page, in order, in one folder: later ones may use what earlier wrote.

console: every command, its exit status and its output. sh, bash: the script must end 0. python:
the blocks of a page share their names, as in one session. c: compiled as C99 with every warning
an error, and run where it has a main. json, toml, yaml, xml: parsed.
"""

import contextlib
import io
import json
import subprocess
import tomllib
import traceback
import xml.etree.ElementTree as xml
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.docs import console
from tests.docs.fences import EXECUTED, Fence

C99 = ("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
PARSERS = {
    "json": json.loads,
    "toml": tomllib.loads,
    "xml": xml.fromstring,
    "yaml": yaml.safe_load,
}


class Page:
    """The folder and the Python names that the blocks of one page share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed: list[str] = []  # by the last python block
        self.written: dict[str, str] = {}  # files that no command used yet: name -> block

    def execute(self, blocks: Iterable[Fence]) -> list[str]:
        """Execute the blocks; return one line for each broken promise."""
        problems = [line for block in blocks for line in self._one(block)]
        unused = [f"{where}: no later block uses {name}" for name, where in self.written.items()]
        return problems + unused

    def _one(self, block: Fence) -> list[str]:
        self._use(block)
        name = block.option("file")
        if name:
            (self.folder / name).write_text(block.text, encoding="utf-8")
            if block.language in EXECUTED:
                self.written[name] = block.where
        if block.language == "console":
            done = (console.run(command, self.folder) for command in console.commands(block))
            return [line for lines in done for line in lines]
        if block.language in ("bash", "sh") and not name:
            return self._script(block)
        action = getattr(self, f"_{block.language}", None)
        problem = action(block) if action and not name else self._data(block)
        return [f"{block.where}: {problem}"] if problem else []

    def _use(self, block: Fence) -> None:
        """Forget the files whose name a block that is executed holds."""
        for name in list(self.written) if block.language in EXECUTED else ():
            if Path(name).stem in block.text:
                del self.written[name]

    def _python(self, block: Fence) -> str:
        out = io.StringIO()
        # Padded, so that a traceback names the line of the page.
        code = "\n" * (block.line - 1) + block.text
        try:
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
                exec(compile(code, block.page, "exec"), self.names)
        except (Exception, SystemExit):
            return traceback.format_exc(limit=-1)
        self.printed = out.getvalue().splitlines()
        return ""

    def _script(self, block: Fence) -> list[str]:
        (self.folder / "script-of-the-page").write_text(block.text, encoding="utf-8")
        text = f"{block.language} -e script-of-the-page"
        return console.run(console.Command(block.where, text, (), 0), self.folder)

    def _c(self, block: Fence) -> str:
        source, program = self.folder / "block.c", self.folder / "block"
        source.write_text(block.text, encoding="utf-8")
        whole = "main(" in block.text
        built = _call(*C99, str(source), "-o", str(program), *([] if whole else ["-c"]))
        return built or (_call(str(program)) if whole else "")

    def _data(self, block: Fence) -> str:
        if "printed" in block.words:
            missing = console.first_missing(block.lines, self.printed)
            return f"not printed by the block before (here): {missing}" if missing else ""
        try:
            PARSERS.get(block.language, str)(block.text)
        except (ValueError, xml.ParseError, yaml.YAMLError) as error:
            return f"not {block.language}: {error}"
        return ""


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else f"{words[0]} ended {done.returncode}: {done.stderr}"
