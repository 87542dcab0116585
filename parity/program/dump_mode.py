"""Dump mode (docs/exec.md): a program runs once and leaves a dump."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity.dump import CONTROL, Dump
from parity.dumps.reader import parse_dump
from parity.errors import InputError, NotRunError
from parity.model.model import Model
from parity.model.opening import path_of, source_of, weights_of
from parity.program.codec import PROTOCOL
from parity.program.process import MORE_OUTPUT, Process, ending
from parity.runs.run import Run
from parity.spec import ProgramSpec

# What a program is told of the run, and does not see in line mode.
_ALWAYS = tuple(
    f"PARITY_{name}"
    for name in ("DUMP", "MODEL", "TOKENS", "PREFILL", "N", "FIELDS", "HASH", "DUMP_PREFILL")
)
REAL_IDS = "PARITY_REAL_IDS"
TOLD = (*_ALWAYS, REAL_IDS)
BY_ITSELF = "run it by itself, with PARITY_DUMP set to a file name"
PLAIN_FILE = "let it write a plain file under the name in PARITY_DUMP"


def program_dump(spec: ProgramSpec, run: Run, fed: Sequence[int]) -> Dump:
    """The dump a program writes for this run, fed ``fed`` after the prompt.

    Raises InputError for a malformed or partial dump and for a program that fails or passes a
    limit, NotRunError for one that writes no dump.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        path = Path(folder) / "program.dump"
        _execute(spec, program_environment(run, fed, path), path)
        dump = parse_dump(_read(spec, path), spec.text)
    return dump


def told_model(model: Model) -> str:
    """What a program is told of a model: the absolute path of one whose weights lie in files, else
    its label.

    Raises InputError for a model that its path does not say, and for a path of several lines.
    """
    path = None if source_of(model) is None else path_of(model)
    if path is None:
        return model.label
    if weights_of(model) == "q4":
        raise InputError(
            "--weights q4: a program is told the path of a model, not how to quantise it",
            "leave --weights out, or give a GGUF file of Q4_0 matrices",
        )
    if CONTROL.search(str(path)):
        raise InputError(
            f"--model {str(path)!r}: a program is told a path of one line", "give it another name"
        )
    return str(path)


def program_environment(run: Run, fed: Sequence[int], path: Path) -> dict[str, str]:
    """What a program is told of the run: it writes the dump file ``path`` (PARITY_DUMP)."""
    values = (
        str(path),
        told_model(run.model),
        ",".join(map(str, [*run.prompt, *fed])),
        str(run.start),
        str(run.n),
        ",".join(run.fields),
        run.hash_name,
        "1" if run.dump_prefill else "0",
    )
    real_ids = run.model.config.real_ids
    padded = {REAL_IDS: str(real_ids)} if real_ids else {}
    return {**dict(zip(_ALWAYS, values, strict=True)), **padded, "PARITY_PROTOCOL": str(PROTOCOL)}


def _execute(spec: ProgramSpec, told: dict[str, str], path: Path) -> None:
    """Run a program to its end; what it prints is shown only when it fails."""
    process = Process(spec, told, talks=False)

    def watch() -> None:
        if path.is_file() and path.stat().st_size > spec.output:
            raise process.failed(f"wrote a dump of more than {spec.output:,} bytes", MORE_OUTPUT)

    status = process.finish(watch)
    if status != 0:
        raise process.failed(ending(status), BY_ITSELF)


def _read(spec: ProgramSpec, path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InputError(f"{spec.text}: its dump is no plain file", PLAIN_FILE)
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotRunError(
            f"{spec.text}: wrote no dump", "let it write the file named by PARITY_DUMP"
        ) from error
    except OSError as error:
        raise InputError(
            f"{spec.text}: its dump cannot be read: {error.strerror}", PLAIN_FILE
        ) from error
