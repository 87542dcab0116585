"""The JSON report: the divergence tree itself, from which every other report can be made again."""

from __future__ import annotations

from typing import TextIO

from parity.presenting import Options, write_text
from parity.tree import Tree


class JsonReport:
    """Presenter ``json``."""

    name = "json"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the tree, whole; no option changes it."""
        write_text(stream, tree.to_json())
