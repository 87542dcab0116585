"""Opening the two sides of a comparison: engines, dump files, programs."""

from __future__ import annotations

from collections.abc import Sequence

from parity.dump import Dump
from parity.dumps.reader import read_dump
from parity.dumps.tensor_files import is_tensor_path, read_tensors
from parity.errors import InputError
from parity.model.memory import Room, check_rooms
from parity.model.watching import Watched
from parity.program.dump_mode import program_dump
from parity.program.engine import program_engine
from parity.progress import Progress
from parity.protocol import Engine, EngineSettings
from parity.registry import engine_class, foreign_engine_class, open_engine
from parity.runs.carried import own_model
from parity.runs.run import Run, Side
from parity.spec import EngineSpec, FileSpec, ProgramSpec, Runnable
from parity.variants import TIERS, VARIANTS, resolve


def open_side(role: str, spec: Runnable, run: Run, progress: Progress) -> Side:
    """An opened engine with the model loaded. ``role``: "ref" or "dut"."""
    return load_side(role, spec, open_unloaded(spec, progress), run, progress)


def open_sides(specs: tuple[Runnable, Runnable], run: Run, progress: Progress) -> tuple[Side, Side]:
    """Ref and dut with the model loaded. NotRunError before anything is read where there is no
    room for both."""
    engines = open_pair(specs, run, progress)
    ref, dut = (
        load_side(role, spec, engine, run, progress)
        for role, spec, engine in zip(("ref", "dut"), specs, engines, strict=True)
    )
    return ref, dut


def open_pair(
    specs: tuple[Runnable, Runnable], run: Run, progress: Progress
) -> tuple[Engine, Engine]:
    """Two engines without a model; NotRunError where there is no room for it in both."""
    ref, dut = (open_unloaded(spec, progress) for spec in specs)
    told = [(spec.text, _room(engine)) for spec, engine in zip(specs, (ref, dut), strict=True)]
    check_rooms([(text, room) for text, room in told if room], run.model, run.positions)
    return ref, dut


def _room(engine: Engine) -> Room | None:
    """Where an engine holds its model; None for one that does not tell."""
    tell = getattr(engine, "room", None)
    return None if tell is None else tell()


def open_unloaded(spec: Runnable, progress: Progress) -> Engine:
    """An opened engine that has no model yet; a program in line mode is one."""
    if isinstance(spec, ProgramSpec):
        program = program_engine(spec)
        return open_engine(program, EngineSettings(program.tiers[0], notes=progress), spec.text)
    found, tier, variants = chosen_variants(spec)
    if spec.given is not None and not isinstance(spec.given, type):
        return spec.given  # type: ignore[no-any-return]
    return open_engine(found, EngineSettings(tier, variants, spec.options, progress), spec.text)


def chosen_variants(spec: EngineSpec) -> tuple[type[Engine], str, frozenset[str]]:
    """The class of the engine that ``spec`` names, the tier, and all variants that are on."""
    found = class_of(spec)
    tier = spec.tier or found.tiers[0]
    return found, tier, _variants(found, tier, spec)


def class_of(spec: Runnable) -> type[Engine]:
    """The engine's class, before any tier or variant of it is looked at; of a program one that is
    made from what it says of itself."""
    if isinstance(spec, ProgramSpec):
        return program_engine(spec)
    if spec.given is not None:
        return spec.given if isinstance(spec.given, type) else type(spec.given)
    return foreign_engine_class(spec.name) if spec.foreign else engine_class(spec.name)


def load_side(role: str, spec: Runnable, engine: Engine, run: Run, progress: Progress) -> Side:
    """The side of an opened engine, with the model loaded."""
    label = f"{role} {spec.text}"
    watched = Watched(own_model(spec, run), label, progress)
    engine.load(watched, run.positions)
    watched.finish()
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
        return program_dump(spec, run, fed)
    if is_tensor_path(spec.path):
        return read_tensors(spec.path, run.hash_name)[0]
    return read_dump(spec.path)
