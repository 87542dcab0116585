"""The same tensors for other tools: written to a folder, judged by ``tool_worker.py`` in a Python
that has them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.study.cases import Pairs
from tests.study.tool_worker import TOOLS

WORKER = Path(__file__).with_name("tool_worker.py")


@dataclass
class Tool:
    """What a tool said: by id the first tensor it calls different, or None. ``error``: why it could
    not be asked."""

    name: str
    version: str = ""
    error: str = ""
    flagged: dict[str, int | None] = field(default_factory=dict)


class Folder:
    """Tensors on their way to other tools: a temporary folder with one file an id."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="study-")
        self.path = Path(self._folder.name)

    def add(self, name: str, pairs: Pairs) -> None:
        """Write the tensors of one fault or pair, in dataflow order."""
        arrays = {
            f"{at}_{role}": np.ascontiguousarray(array)
            for at, pair in enumerate(pairs)
            for role, array in zip(("ref", "dut"), pair, strict=True)
        }
        np.savez(self.path / f"{name}.npz", **arrays)  # type: ignore[arg-type]

    def ask(self, python: str) -> list[Tool]:
        """Run the tools under ``python``; one that fails as a whole fails for each of them."""
        out = self.path / "tools.json"
        command = [python, str(WORKER), str(self.path), str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return [Tool(name, error=f"{python}: {error.strerror}") for name in TOOLS]
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return [Tool(name, error=said) for name in TOOLS]
        found = json.loads(out.read_text())
        return [Tool(name, **said) for name, said in found.items()]

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


def ask_tools(folder: Folder, python: str | None) -> list[Tool]:
    """The tools of the Python named, with None of this one, with "" none."""
    return folder.ask(python or sys.executable) if python != "" else []
