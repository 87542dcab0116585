"""``parity diff``: which sides, how they are run, what is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parity.cli.options import make_run
from parity.cli.reporting import require_writable_reports, write_reports
from parity.errors import InputError, NotRunError
from parity.progress import Progress
from parity.registry import ENGINES, engine_class, plugins
from parity.spec import EngineSpec, FileSpec, ProgramSpec, Spec, parse_spec
from parity.status import Level

if TYPE_CHECKING:
    from parity.diff import Ask
    from parity.run import Run
    from parity.tree import Tree

DEVICE, FALLBACK = "cuda", "emu"


def run_diff(
    typed: str,
    *,
    ref: str,
    dut: str | None,
    bisect: bool,
    level: str,
    json_path: str | None,
    csv_path: str | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity diff``; returns the exit status."""
    require_writable_reports(json_path, csv_path)
    from parity.diff import Ask

    installed = plugins(ENGINES)
    chosen = dut or default_dut()
    specs = (parse_spec(ref, installed), parse_spec(chosen, installed))
    run = make_run(**options)
    reproduce = typed if dut else f"{typed} --dut {chosen}"
    ask = Ask(Level(level), reproduce, int(options["seed"]))
    with Progress(quiet=quiet) as progress:
        tree = diff_sides(specs, run, ask, progress, bisect=bisect)
    if dut is None and chosen == FALLBACK:
        tree.notes.append("no CUDA device works here: the dut is emu (--dut cuda says why)")
    return write_reports(tree, json_path=json_path, csv_path=csv_path, quiet=quiet)


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
    specs: tuple[Spec, Spec], run: Run, ask: Ask, progress: Progress, *, bisect: bool
) -> Tree:
    """Compare two sides of any kind."""
    from parity.diff import diff_engines
    from parity.search import bisect_engines
    from parity.sides import open_side

    ref, dut = specs
    if isinstance(ref, EngineSpec) and isinstance(dut, EngineSpec):
        sides = (open_side("ref", ref, run, progress), open_side("dut", dut, run, progress))
        return (bisect_engines if bisect else diff_engines)(*sides, run, ask)
    if bisect or run.prefill == "ref":
        option = "--bisect" if bisect else "--prefill ref"
        raise InputError(f"{option} needs two engines", "name engines on both sides")
    return _diff_dumps(specs, run, ask, progress)


def _diff_dumps(specs: tuple[Spec, Spec], run: Run, ask: Ask, progress: Progress) -> Tree:
    """One side at least is a dump file or a program: what was written decides."""
    from parity.compare import compare_dumps
    from parity.diff import finish_dumps

    ref, dut = (None, None)
    fed: list[int] = []
    if isinstance(specs[0], EngineSpec):
        ref, fed = _engine_dump("ref", specs[0], run, None, progress)
    else:
        ref = _read("ref", specs[0], run, fed)
        fed = _fed_tokens(ref.header, run)
    if isinstance(specs[1], EngineSpec):
        dut, _ = _engine_dump("dut", specs[1], run, fed or None, progress)
    else:
        dut = _read("dut", specs[1], run, fed)
    return finish_dumps(compare_dumps(ref, dut, level_asked=ask.level), ref, dut, ask)


def _read(role: str, spec: FileSpec | ProgramSpec, run: Run, fed: list[int]) -> Any:
    from parity.sides import dump_of

    if role == "ref" and isinstance(spec, ProgramSpec):
        raise InputError(
            f"{spec.text}: a program cannot be the ref: nothing says which tokens to feed it",
            "make the engine the ref, or write its dump first",
        )
    return dump_of(spec, run, fed)


def _engine_dump(
    role: str, spec: EngineSpec, run: Run, fed: list[int] | None, progress: Progress
) -> tuple[Any, list[int]]:
    from parity.run import run_side
    from parity.sides import open_side

    done = run_side(open_side(role, spec, run, progress), run, fed=fed)
    return done.dump, done.fed


def _fed_tokens(header: dict[str, str], run: Run) -> list[int]:
    """Tokens after the prompt that a dump's header names; its prompt must be this run's."""
    if "tokens" not in header:
        return []
    tokens = [int(part) for part in header["tokens"].split(",") if part.strip().isdecimal()]
    if tuple(tokens[: run.start]) != run.prompt or len(tokens) != run.positions:
        raise InputError(
            f"the ref dump was made with other tokens ({len(tokens)}) than this run "
            f"({run.start} of prompt, {run.n} decoded)",
            "give the --model, --seed, --tokens and --n it was made with",
        )
    return tokens[run.start :]
