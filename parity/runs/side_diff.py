"""Compare two sides of any kind: engines, dump files, programs. ``parity diff`` presents it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import InputError, NotRunError
from parity.registry import ENGINES, engine_class, plugins
from parity.runs.settings import parse_tokens
from parity.spec import EngineSpec, FileSpec, ProgramSpec, Spec
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.dump import Dump
    from parity.progress import Progress
    from parity.runs.engine_diff import Ask
    from parity.runs.run import Run, Side, SideRun
    from parity.tree import Tree

DEVICE, FALLBACK = "cuda", "emu"
FELL_BACK = "no CUDA device works here: the dut is emu (--dut cuda says why)"


def default_dut() -> str:
    """``cuda`` where a device works, else ``emu``."""
    from parity.protocol import EngineSettings

    if DEVICE in plugins(ENGINES):
        try:
            engine_class(DEVICE)(EngineSettings())  # type: ignore[call-arg]
        except NotRunError:
            return FALLBACK
        return DEVICE
    return FALLBACK


def diff_sides(
    specs: tuple[Spec, Spec],
    run: Run,
    ask: Ask,
    progress: Progress,
    *,
    bisect: bool,
    repro: str | None = None,
    alias: Path | None = None,
) -> Tree:
    """Compare two sides of any kind. ``repro``: the folder that a red run of engines writes.
    ``alias``: a file of rules for other names in a dut that is a file or a program."""
    from parity.runs.engine_diff import diff_engines, tell_orders
    from parity.runs.search import bisect_engines
    from parity.runs.sides import open_sides

    ref, dut = specs
    if alias is not None and isinstance(dut, EngineSpec):
        raise InputError("--alias needs a dut that is a file or a program", "leave it out")
    if isinstance(ref, EngineSpec) and isinstance(dut, EngineSpec):
        if bisect and ask.profile:
            raise InputError("--bisect keeps no values to measure", "leave --profile out")
        sides = open_sides((ref, dut), run, progress)
        _refuse_search(sides, ask, {"--bisect": bisect, "--repro": repro is not None})
        tree = (bisect_engines if bisect else diff_engines)(*sides, run, ask)
        if ask.orders:
            tell_orders(tree, *sides)
        if repro is not None and tree.verdict is not Verdict.SAME:
            from parity.explain.repro import save_repro

            save_repro(repro, tree, *sides, run)
        return tree
    engines_only = {"--bisect": bisect, "--prefill ref": run.prefill == "ref"}
    engines_only |= {"--profile": ask.profile, "--repro": repro is not None}
    for option, given in engines_only.items():
        if given:
            raise InputError(f"{option} needs two engines", "name engines on both sides")
    if isinstance(ref, FileSpec) and isinstance(dut, FileSpec):
        from parity.comparison.files import compare_files

        return compare_files(ref.path, dut.path, ask, alias=alias)
    return _diff_dumps(ref, dut, run, ask, progress, alias)


def _refuse_search(sides: tuple[Side, Side], ask: Ask, options: dict[str, bool]) -> None:
    """InputError for what looks for the first bit, where bits are not expected to be equal."""
    from parity.runs.profiling import bits_expected

    if ask.typed or bits_expected(*sides):
        return
    for option, given in options.items():
        if given:
            raise InputError(
                f"{option} finds the first bit that differs, and of {sides[0].spec} and "
                f"{sides[1].spec} equal bits are not expected",
                f"leave {option} out, or ask for them with --level bit",
            )


def _diff_dumps(
    ref: Spec,
    dut: Spec,
    run: Run,
    ask: Ask,
    progress: Progress,
    alias: Path | None,
) -> Tree:
    """One side at least is a dump file or a program: what was written decides. A program that is
    the ref answers in line mode, since its choices are fed to both; as dut it writes a dump."""
    from parity.runs.engine_diff import run_facts

    began = time.monotonic()
    ref_dump, fed, ran = _ref_dump(ref, run, progress)
    if isinstance(dut, EngineSpec):
        tree = _diff_engine(ref_dump, fed, dut, run, ask, progress)
    else:
        tree = _diff_written(ref_dump, fed, dut, run, ask, alias)
    if ran is not None and tree.verdict is Verdict.DIVERGED:
        from parity.runs.stability import confirm

        confirm(tree, ran[0], run, ran[1])
    tree.run = run_facts(run, fed)
    tree.seconds = time.monotonic() - began
    return tree


def _ref_dump(
    spec: Spec, run: Run, progress: Progress
) -> tuple[Dump, list[int], tuple[Side, SideRun] | None]:
    """The ref's dump, the tokens it was fed after the prompt, and the engine that ran, if any."""
    from parity.runs.run import run_side
    from parity.runs.sides import dump_of, open_side

    if not isinstance(spec, FileSpec):
        side = open_side("ref", spec, run, progress)
        done = run_side(side, run)
        return done.dump, done.fed, (side, done)
    dump = dump_of(spec, run, [])
    return dump, fed_tokens("ref", dump, run), None


def _diff_engine(
    ref: Dump, fed: list[int], spec: EngineSpec, run: Run, ask: Ask, progress: Progress
) -> Tree:
    """An engine against a ref that was written before."""
    from parity.comparison.compare import compare_dumps
    from parity.comparison.impossible import one_hash_notes
    from parity.comparison.parting import label_parting
    from parity.runs.engine_diff import check_control, start_of
    from parity.runs.run import run_side
    from parity.runs.sides import open_side
    from parity.runs.stability import confirm
    from parity.runs.stopped import kept_when_stopped

    side = open_side("dut", spec, run, progress)
    follows_ref = bool(fed) and run.tokens_from == "ref"
    with kept_when_stopped(ref, ask.level, ask.reproduce):
        done = run_side(side, run, fed=fed if follows_ref else None)
    tree = compare_dumps(ref, done.dump, level_asked=ask.level)
    tree.reproduce = ask.reproduce
    tree.notes += one_hash_notes(ref, done.dump)
    label_parting(tree, ref, done.dump)
    if not fed:
        tree.notes.append("the ref dump names no tokens: the dut follows its own choices")
    if tree.verdict is Verdict.DIVERGED:
        confirm(tree, side, run, done)
    if tree.verdict is Verdict.SAME:
        check_control(tree, start_of(side, run, done), ref, done.dump, ask.seed)
    return tree


def _diff_written(
    ref: Dump,
    fed: list[int],
    spec: FileSpec | ProgramSpec,
    run: Run,
    ask: Ask,
    alias: Path | None,
) -> Tree:
    """A dump file or a program against a ref that was run or read."""
    from parity.comparison.alias import apply_aliases, read_aliases
    from parity.comparison.compare import compare_dumps
    from parity.runs.engine_diff import finish_dumps
    from parity.runs.sides import dump_of

    if isinstance(spec, ProgramSpec) and run.tokens_from == "own":
        raise InputError(
            f"--tokens-from own: {spec.text} is told the ref's tokens", "leave the option out"
        )
    rules = read_aliases(alias) if alias is not None else []
    dut = dump_of(spec, run, fed)
    if isinstance(spec, FileSpec):
        fed_tokens("dut", dut, run)
    given = apply_aliases(rules, ref, dut)
    tree = compare_dumps(ref, given.dut, level_asked=ask.level, apart=given.apart)
    tree.notes += given.notes
    return finish_dumps(tree, ref, given.dut, ask, apart=given.apart)


def fed_tokens(role: str, dump: Dump, run: Run) -> list[int]:
    """Tokens after the prompt that a dump's header names; none where it names none.

    Raises InputError when it was made with another prompt, or with more or fewer steps.
    """
    text = dump.header.get("tokens", "")
    if not text:
        return []
    try:
        tokens = parse_tokens(text)
    except InputError as error:
        raise InputError(
            f"{dump.source}: header tokens: not token ids: {text!r}", "write it as # tokens 1,2,3"
        ) from error
    whole = len(tokens) == run.positions or "stopped" in dump.header
    if tuple(tokens[: run.start]) != run.prompt or not whole:
        raise InputError(
            f"the {role} dump {dump.source} was made with other tokens ({len(tokens)}) than this "
            f"run ({run.start} of prompt, {run.n} decoded)",
            "give the --model, --seed, --tokens and --n it was made with",
        )
    return tokens[run.start :]
