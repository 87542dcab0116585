"""Opening the two sides of a comparison: engines, dump files, programs."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from parity.dump import Dump
from parity.dump_reader import read_dump
from parity.errors import InputError, NotRunError
from parity.progress import Progress
from parity.protocol import EngineSettings
from parity.registry import engine_class, foreign_engine_class, open_engine
from parity.run import Run, Side
from parity.spec import EngineSpec, FileSpec, ProgramSpec


def open_side(role: str, spec: EngineSpec, run: Run, progress: Progress) -> Side:
    """An opened engine with the model loaded. ``role``: "ref" or "dut"."""
    if spec.minus:
        name = sorted(spec.minus)[0]
        raise InputError(
            f"{spec.text}: tier {spec.tier} has no variant {name!r} to take out", "leave it out"
        )
    found = foreign_engine_class(spec.name) if spec.foreign else engine_class(spec.name)
    settings = EngineSettings(spec.tier, spec.plus, spec.options, progress)
    engine = open_engine(found, settings, spec.text)
    engine.load(run.model, run.positions)
    label = f"{role} {spec.text}"
    return Side(
        role,
        spec.text,
        engine,
        lambda where, done, total: progress.update(label, where, done, total),
    )


def dump_of(spec: FileSpec | ProgramSpec, run: Run | None, fed: list[int]) -> Dump:
    """The dump of a file, or the one a program writes for this run."""
    if isinstance(spec, FileSpec):
        return read_dump(spec.path)
    if run is None:
        raise InputError(f"{spec.text}: a program needs a run to take part in", "name an engine")
    return _run_program(spec, run, fed)


def _run_program(spec: ProgramSpec, run: Run, fed: list[int]) -> Dump:
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        path = Path(folder) / "program.dump"
        told = {
            "PARITY_DUMP": str(path),
            "PARITY_MODEL": run.model.label,
            "PARITY_TOKENS": ",".join(map(str, [*run.prompt, *fed])),
            "PARITY_PREFILL": str(run.start),
            "PARITY_N": str(run.n),
            "PARITY_FIELDS": ",".join(run.fields),
            "PARITY_HASH": run.hash_name,
            "PARITY_DUMP_PREFILL": "1" if run.dump_prefill else "0",
        }
        try:
            done = subprocess.run(
                shlex.split(spec.command),
                env={**os.environ, **told},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        except OSError as error:
            raise InputError(
                f"{spec.text}: cannot be started: {error.strerror}", "check the path"
            ) from error
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError(
                f"{spec.text}: ended with status {done.returncode}: {said}",
                "run it by itself with PARITY_DUMP set",
            )
        if not path.exists():
            raise NotRunError(
                f"{spec.text}: wrote no dump", "let it write the file named by PARITY_DUMP"
            )
        dump = read_dump(path)
        dump.source = spec.text
        return dump
