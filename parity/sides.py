"""Opening the two sides of a comparison: engines, dump files, programs."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity.dump import Dump
from parity.dump_reader import parse_dump, read_dump
from parity.errors import InputError, NotRunError
from parity.progress import Progress
from parity.protocol import Engine, EngineSettings
from parity.registry import engine_class, foreign_engine_class, open_engine
from parity.run import Run, Side
from parity.spec import EngineSpec, FileSpec, ProgramSpec
from parity.tensor_files import is_tensor_path, read_tensors
from parity.variants import TIERS, VARIANTS, resolve


def open_side(role: str, spec: EngineSpec, run: Run, progress: Progress) -> Side:
    """An opened engine with the model loaded. ``role``: "ref" or "dut"."""
    return load_side(role, spec, open_unloaded(spec, progress), run, progress)


def open_unloaded(spec: EngineSpec, progress: Progress) -> Engine:
    """An opened engine that has no model yet."""
    found, tier, variants = chosen_variants(spec)
    return open_engine(found, EngineSettings(tier, variants, spec.options, progress), spec.text)


def chosen_variants(spec: EngineSpec) -> tuple[type[Engine], str, frozenset[str]]:
    """The class of the engine that ``spec`` names, the tier, and all variants that are on."""
    found = foreign_engine_class(spec.name) if spec.foreign else engine_class(spec.name)
    tier = spec.tier or found.tiers[0]
    return found, tier, _variants(found, tier, spec)


def load_side(role: str, spec: EngineSpec, engine: Engine, run: Run, progress: Progress) -> Side:
    """The side of an opened engine, with the model loaded."""
    engine.load(run.model, run.positions)
    label = f"{role} {spec.text}"
    return Side(
        role,
        spec.text,
        engine,
        lambda where, done, total: progress.update(label, where, done, total),
    )


def _variants(found: type[Engine], tier: str, spec: EngineSpec) -> frozenset[str]:
    """The variants asked for: the contract's, and those that a user's engine brings itself."""
    own = frozenset(found.variants) - frozenset(VARIANTS)
    if tier not in TIERS:  # open_engine refuses one that the engine lacks, too
        if spec.minus and tier in found.tiers:
            name = sorted(spec.minus)[0]
            raise InputError(f"{spec.text}: tier {tier} has no {name} to take out", "leave it out")
        return spec.plus
    return resolve(tier, spec.plus - own, spec.minus, spec.text) | (spec.plus & own)


def dump_of(spec: FileSpec | ProgramSpec, run: Run, fed: Sequence[int]) -> Dump:
    """The dump of a file, or the one a program writes for this run, fed ``fed`` after the prompt.

    Raises InputError for a malformed dump and a program that fails, NotRunError for one that
    writes no dump.
    """
    if isinstance(spec, ProgramSpec):
        return _run_program(spec, run, fed)
    if is_tensor_path(spec.path):
        return read_tensors(spec.path, run.hash_name)[0]
    return read_dump(spec.path)


def program_environment(run: Run, fed: Sequence[int], path: Path) -> dict[str, str]:
    """What a program is told of the run: it writes the dump file ``path`` (PARITY_DUMP)."""
    return {
        "PARITY_DUMP": str(path),
        "PARITY_MODEL": run.model.label,
        "PARITY_TOKENS": ",".join(map(str, [*run.prompt, *fed])),
        "PARITY_PREFILL": str(run.start),
        "PARITY_N": str(run.n),
        "PARITY_FIELDS": ",".join(run.fields),
        "PARITY_HASH": run.hash_name,
        "PARITY_DUMP_PREFILL": "1" if run.dump_prefill else "0",
    }


def _run_program(spec: ProgramSpec, run: Run, fed: Sequence[int]) -> Dump:
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        path = Path(folder) / "program.dump"
        _execute(spec, program_environment(run, fed, path))
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise NotRunError(
                f"{spec.text}: wrote no dump", "let it write the file named by PARITY_DUMP"
            ) from error
        except OSError as error:
            raise InputError(
                f"{spec.text}: its dump cannot be read: {error.strerror}",
                "let it write a plain file under the name in PARITY_DUMP",
            ) from error
        return parse_dump(data, spec.text)


def _execute(spec: ProgramSpec, told: dict[str, str]) -> None:
    """Run a program to its end; what it prints is shown only when it fails."""
    try:
        done = subprocess.run(
            spec.command,
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{spec.text}: cannot be started: {getattr(error, 'strerror', None) or error}",
            f"check the path of {spec.command[0]}",
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"{spec.text}: {_ending(done.returncode)}: {said[-1] if said else 'it said nothing'}",
            "run it by itself, with PARITY_DUMP set to a file name",
        )


def _ending(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
