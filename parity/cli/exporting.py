"""``parity export``: a model as a GGUF file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from parity.cli.reporting import write_lines
from parity.errors import InputError
from parity.model.memory import size_text
from parity.presenting import STDOUT
from parity.progress import Progress


def run_export(output: Path, *, model: str, seed: int, weights: str | None, quiet: bool) -> int:
    """Run ``parity export``; InputError before anything is made where it cannot be written."""
    from parity.model.file_model import GGUF
    from parity.model.gguf import export_gguf
    from parity.model.loading import Ahead
    from parity.model.opening import open_model
    from parity.model.watching import Watched

    if output.suffix.lower() != GGUF:
        raise InputError(f"{output}: no name of a GGUF file", f"write {output.with_suffix(GGUF)}")
    if os.path.lexists(output):
        raise InputError(f"{output}: exists already", "give another name")
    opened = open_model(model, seed=seed, weights=weights)
    began = time.monotonic()
    with Progress(quiet=quiet) as progress:
        export_gguf(Ahead(Watched(opened, "export", progress)), output)
    seconds, count = time.monotonic() - began, output.stat().st_size
    if not quiet:
        rate = f"{count / 1e9 / seconds:,.2f} GB/s" if seconds > 0 else ""
        told = f"{opened.label}, {size_text(count)} ({count:,} bytes), {seconds:,.1f} s, {rate}"
        write_lines([f"{output}  {told}"], STDOUT)
    return 0
