"""The commands of ``parity``. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from parity import __version__
from parity.cli.baseline_commands import baseline
from parity.cli.gate_commands import gate
from parity.cli.options import (
    CHECK_REPORT_OPTIONS,
    MODEL,
    MODEL_METAVAR,
    PROBE_OPTIONS,
    PROMPT,
    REPEAT_OPTIONS,
    REPORT_OPTIONS,
    RUN_OPTIONS,
    SIDE_MODEL,
    WEIGHTS,
    command_line,
    with_options,
)

NEAR_TIE_SEED = 10  # of moe-48: each rung of the ladder but exact flips a token (docs/ladder.md)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(__version__, prog_name="parity", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Are these two runs the same, bit for bit, and if not, where does the difference begin?

    Exit status: 0 same, 1 diverged or unstable, 2 usage or bad input, 3 not run.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)


@cli.command()
def demo() -> int:
    """Plant a fault of 1 ULP and find it. Then show the clean run: no GPU, no download."""
    from parity.cli.demo import run_demo_command

    return run_demo_command()


@cli.command()
@click.option("--ref", default="cpu", show_default=True, help="Trusted side: engine, dump, exec:…")
@click.option("--dut", help="Side under test (default: cuda where a device works, else emu).")
@with_options(RUN_OPTIONS)
@click.option(
    "--prefill",
    type=click.Choice(["own", "ref"]),
    default="own",
    show_default=True,
    help="Each side prefills itself, or the dut takes over the ref's state.",
)
@click.option(
    "--tokens-from",
    type=click.Choice(["ref", "own"]),
    default="ref",
    show_default=True,
    help="Both sides are fed the ref's choices, or each its own.",
)
@click.option("--bisect", is_flag=True, help="One chained digest a layer, then binary search.")
@click.option(
    "--level",
    type=click.Choice(["bit", "logits", "greedy"]),
    help="Level that exit status 0 requires (default: bit; greedy where one side alone has an "
    "order of its own, as hf).",
)
@click.option("--profile", is_flag=True, help="Measure how far apart every field is (engines).")
@click.option(
    "--repro", metavar="DIR", help="Write a red run's op, its inputs and both outputs there."
)
@click.option("--alias", type=Path, metavar="FILE", help="Rules for a written dut: dut = ref.")
@with_options(REPORT_OPTIONS)
def diff(**options: object) -> int:
    """Compare two sides, key by key. Both run the same model on the same tokens."""
    from parity.cli.diffing import run_diff

    return run_diff(command_line(sys.argv[1:]), **options)  # type: ignore[arg-type]


@cli.command()
@click.option("--ref", default="cpu", show_default=True, help="Trusted engine.")
@click.option("--dut", help="Engine under test (default: cuda where a device works, else emu).")
@with_options(RUN_OPTIONS)
@click.option(
    "--prefill",
    type=click.Choice(["own", "ref"]),
    default="own",
    show_default=True,
    help="Each side prefills itself, or the dut takes over the ref's state.",
)
@click.option(
    "--tokens-from",
    type=click.Choice(["ref", "own"]),
    default="ref",
    show_default=True,
    help="Both sides are fed the ref's choices, or each its own.",
)
@click.option(
    "--level",
    type=click.Choice(["bit", "logits", "greedy"]),
    default="bit",
    show_default=True,
    help="Level that exit status 0 requires.",
)
@click.option("--only", default="", help="Parts: variants,placement,transplant (default: all).")
@click.option(
    "--transplant",
    "keys",
    metavar="KEY",
    multiple=True,
    help="Put the ref's tensor in place of KEY (repeatable; default: the first keys that differ).",
)
@click.option("--no-cache", is_flag=True, help="Make every run, keep no result.")
@with_options(REPORT_OPTIONS)
def isolate(**options: object) -> int:
    """Find the variants, ops and keys to blame. Remove, place and transplant until it is equal."""
    from parity.cli.isolating import run_isolate

    return run_isolate(command_line(sys.argv[1:]), **options)  # type: ignore[arg-type]


@cli.command()
@with_options(PROBE_OPTIONS)
@click.option("--m", "sizes", default="4", show_default=True, help="Rows: 4, 2,4,8 or 2..8.")
@click.option("--rb", is_flag=True, help="Check mark and rollback too.")
@click.option("--rb-only", is_flag=True, help="Check mark and rollback alone.")
@click.option("--chunks", default="", help="Check prompt chunks of these sizes alone: 2,7,16.")
@click.option("--batch", is_flag=True, help="Check batches of --m unrelated sequences alone.")
def isodiff(rb: bool, rb_only: bool, batch: bool, **options: object) -> int:
    """Prove that M rows equal M single steps. Logits, keys, state, further steps, as bits."""
    from parity.cli.probing import run_probes

    alone = [name for name in ("chunks", "batch") if {**options, "batch": batch}[name]]
    if alone and (rb or rb_only or len(alone) > 1):
        others = "without --rb" if rb or rb_only else "without --batch"
        raise click.UsageError(f"--{alone[0]} is a check of its own: give it {others}")
    names = ("isodiff", "rollback") if rb else ("isodiff",)
    names = ("rollback",) if rb_only else names
    names = (alone[0],) if alone else names
    return run_probes(command_line(sys.argv[1:]), names, **options)  # type: ignore[arg-type]


@cli.command()
@with_options(PROBE_OPTIONS)
@click.option("--m", "sizes", default="2,4,8", show_default=True, help="Rows: 4, 2,4,8 or 2..8.")
def rollback(**options: object) -> int:
    """Prove that going back leaves no trace. Mark, M rows, rollback (isodiff --rb-only)."""
    from parity.cli.probing import run_probes

    return run_probes(command_line(sys.argv[1:]), ("rollback",), **options)  # type: ignore[arg-type]


@cli.command()
@click.argument("side")
@with_options((SIDE_MODEL, WEIGHTS))
@click.option("--seed", default=7, show_default=True, help="Of a preset's weights and of tokens.")
@with_options(CHECK_REPORT_OPTIONS)
def conformance(side: str, **options: object) -> int:
    """Hold an engine to the promises of every engine. Each is kept, not offered or broken."""
    from parity.cli.conforming import run_conformance

    return run_conformance(command_line(sys.argv[1:]), side, **options)  # type: ignore[arg-type]


@cli.command()
@click.option("--engine", default="cpu", show_default=True, help="Engine under test.")
@click.option("--n", "runs", default=20, show_default=True, help="Runs.")
@with_options(REPEAT_OPTIONS)
@with_options(REPORT_OPTIONS)
def stable(**options: object) -> int:
    """Run one engine again and again. Every run must have the bits of the first."""
    from parity.cli.stable import run_stable

    return run_stable(command_line(sys.argv[1:]), **options)  # type: ignore[arg-type]


@cli.command()
@click.argument("folder", type=Path)
@click.option("--ref", help="Another engine in the place of the recorded ref.")
@click.option("--dut", help="Another engine in the place of the recorded dut.")
@click.option("--model", metavar="FILE.gguf|FOLDER", help="Where the model file lies now.")
@with_options(REPORT_OPTIONS)
def replay(folder: Path, **options: object) -> int:
    """Run the one op of a saved divergence. FOLDER is one that diff --repro wrote."""
    from parity.cli.replaying import run_replay

    return run_replay(command_line(sys.argv[1:]), folder, **options)  # type: ignore[arg-type]


@cli.command()
@click.option("--engine", default="cpu", show_default=True, help="Engine to run.")
@click.option("-o", "--output", required=True, help="Dump file to write (- is stdout).")
@click.option("--plain", is_flag=True, help="Two columns: tag and digest.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@with_options(RUN_OPTIONS)
def dump(engine: str, output: str, plain: bool, force: bool, **options: object) -> int:
    """Run one engine and write its dump. One line a key (docs/dump-format.md)."""
    from parity.cli.dumping import run_dump

    return run_dump(engine, output, plain=plain, force=force, options=options)


@cli.command()
@click.argument("ref", type=Path)
@click.argument("dut", type=Path)
@click.option(
    "--level",
    type=click.Choice(["bit", "logits", "greedy"]),
    default="bit",
    show_default=True,
    help="Level that exit status 0 requires.",
)
@click.option("--alias", type=Path, metavar="FILE", help="Rules for other names: dut = ref.")
@click.option(
    "--partial", is_flag=True, help="Compare a cut or interrupted dump as far as it goes."
)
@with_options(REPORT_OPTIONS)
def compare(ref: Path, dut: Path, **options: object) -> int:
    """Compare two dumps or tensor files. Also .npz, .safetensors, folders of .npy."""
    from parity.cli.comparing import run_compare

    return run_compare(command_line(sys.argv[1:]), ref, dut, **options)  # type: ignore[arg-type]


@cli.command()
@click.argument("side")
@click.option("-o", "--output", help="Digest file to write (default without --against: stdout).")
@click.option("--against", metavar="SIDE", help="Find the first key that differs in this one.")
@click.option(
    "--bits",
    type=click.Choice(["32", "64"]),
    default="32",
    show_default=True,
    help="Of each digest in the file; the one of all keys has 64.",
)
@click.option("--plain", is_flag=True, help="Leave out dtype and shape.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@with_options(RUN_OPTIONS)
@with_options(REPORT_OPTIONS)
def digest(side: str, **options: object) -> int:
    """Write a small prefix-digest tree of a run. Two find their first differing key.

    SIDE is a dump, a tensor file, a digest file or an engine (docs/digest.md).
    """
    from parity.cli.digesting import run_digest

    return run_digest(command_line(sys.argv[1:]), side, **options)  # type: ignore[arg-type]


@cli.command()
@click.option(
    "--engine",
    "engines",
    multiple=True,
    help="Engine to test (repeatable; default: all that work).",
)
@click.option("--seed", default=7, show_default=True, help="Of models, keys and elements.")
@with_options(CHECK_REPORT_OPTIONS)
def selftest(**options: object) -> int:
    """Plant the faults that common checks miss. See each caught at exactly its key."""
    from parity.cli.selftesting import run_selftest

    return run_selftest(command_line(sys.argv[1:]), **options)  # type: ignore[arg-type]


@cli.command()
@click.argument("run", type=Path)
@click.option(
    "--format", "format_name", metavar="NAME", help="One more report, also of a plug-in, to -o."
)
@click.option("-o", "--output", default="-", show_default=True, help="File for it (- is stdout).")
@with_options(REPORT_OPTIONS)
def report(run: Path, **options: object) -> int:
    """Render a saved result again. RUN is a file of --json, of any command.

    The exit status is that of the saved verdict.
    """
    from parity.cli.rendering import run_report

    return run_report(run, **options)  # type: ignore[arg-type]


@cli.command()
@click.option("--ref", default="cpu", show_default=True, help="Trusted engine.")
@click.option("--engine", default="cpu", show_default=True, help="Engine whose rungs are climbed.")
@click.option(
    "--model",
    metavar=MODEL_METAVAR,
    default="",
    help="Preset, GGUF file or folder. [default: a side's own, else moe-48]",
)
@with_options((WEIGHTS,))
@click.option(
    "--seed",
    default=NEAR_TIE_SEED,
    show_default=True,
    help="Of a preset's weights and of the prompt.",
)
@with_options(PROMPT)
@click.option("--n", default=64, show_default=True, help="Greedy tokens.")
@with_options(CHECK_REPORT_OPTIONS)
def ladder(**options: object) -> int:
    """Count the greedy tokens shared with ref. For fast, two variants and exact."""
    from parity.cli.laddering import run_ladder

    return run_ladder(command_line(sys.argv[1:]), **options)  # type: ignore[arg-type]


@cli.command()
@click.argument("function", metavar="[FN]", required=False)
@click.option("--ref", help="Trusted implementation.  [default: ucrt]")
@click.option(
    "--dut",
    help="Under test: ucrt, libm, numpy, correct, exp_via_double, cuda, cuda-fast, ucrt@cuda, "
    "module:function or LIBRARY.so:SYMBOL.",
)
@click.option("--domain", metavar="LO:HI", help="Draw uniformly from here (default: FN's own).")
@click.option("--n", "samples", type=int, help="Samples.  [default: 400002]")
@click.option("--seed", default=7, show_default=True, help="Of the samples.")
@click.option("--exhaustive", is_flag=True, help="Every float32, all 4,294,967,296 of them.")
@click.option("--chunk", type=int, help="Inputs at a time (default: what suits the memory).")
@click.option("--state", metavar="FILE", help="Keep an exhaustive sweep here, and go on from it.")
@click.option("--special/--no-special", default=True, help="Special values too, counted apart.")
@click.option(
    "--positions/--no-positions",
    default=None,
    help="Check that a result does not depend on where its input sits (default: when sampling).",
)
@click.option("--table", is_flag=True, help="Measure what the Kestrel articles report.")
@click.option("--json", "json_path", metavar="FILE", help="Write the result (- is stdout).")
@click.option("--html", "html_path", metavar="FILE", help="Write the report as one HTML file.")
@click.option("-q", "--quiet", is_flag=True, help="One line.")
def mathfn(function: str | None, **options: object) -> int:
    """Compare implementations of expf, cosf and more. Over samples, or over every float32."""
    from parity.cli.mathfn import run_mathfn

    return run_mathfn(command_line(sys.argv[1:]), function, **options)  # type: ignore[arg-type]


@cli.command()
@click.argument("op")
@click.option("--K", "k_size", default=256, show_default=True, help="Terms of one sum.")
@click.option("--N", "n_size", type=int, help="Outputs of an op that has them (default: 64).")
@click.option("--M", "sizes", default="1", show_default=True, help="Batch rows: 8, 1,8,64 or 1..8.")
@click.option(
    "--dtype",
    type=click.Choice(["f32", "bf16", "f16"]),
    default="f32",
    show_default=True,
    help="Of the inputs.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the op runs.",
)
@click.option(
    "--terms",
    type=click.Choice(["products", "values", "squares"]),
    help="What a module:function sums: f(x, w), f(w), f(w).",
)
@click.option("--threads", type=int, help="Threads of the op, where it has any.")
@click.option("--seed", default=7, show_default=True, help="Of pivots, certificates and noise.")
@click.option(
    "--outputs",
    type=int,
    help="Outputs compared between two batch sizes (default: a million, or as many as 30 s allow); "
    "0 compares none.",
)
@click.option("--out", metavar="FILE.order.json", help="Write an order file for each M.")
@click.option(
    "--rows", type=int, help="Rows of the op's bits in it, to be replayed (default: 256)."
)
@click.option("--loops", metavar="FILE.py", help="Write each tree as readable loops.")
@click.option("--json", "json_path", metavar="FILE", help="Write the result (- is stdout).")
@click.option("--html", "html_path", metavar="FILE", help="Write the report, with drawn trees.")
@click.option("-q", "--quiet", is_flag=True, help="One line.")
def order(op: str, **options: object) -> int:
    """Reveal in which order an op adds. And whether that changes with the batch size M.

    OP is torch.linear, numpy.sum, cpu.rmsnorm, ... or module:function (docs/order.md).
    """
    from parity.cli.ordering import run_order

    return run_order(command_line(sys.argv[1:]), op, **options)  # type: ignore[arg-type]


@cli.command(name="replay-order")
@click.argument("file", type=Path)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Ask the op of the file again there, instead of replaying its bits.",
)
@click.option("--seed", default=7, show_default=True, help="Of the certificate and the noise.")
@click.option("-q", "--quiet", is_flag=True, help="One line.")
def replay_order(file: Path, **options: object) -> int:
    """Replay the bits of an order file. On this CPU, without the device that they are of."""
    from parity.cli.order_replaying import run_replay_order

    return run_replay_order(file, **options)  # type: ignore[arg-type]


@cli.command()
@click.option("--json", "json_path", help="Write the list as JSON (- is stdout).")
def engines(json_path: str | None) -> int:
    """List the installed engines. With tiers, variants and capabilities."""
    from parity.cli.listing import run_engines

    return run_engines(json_path)


@cli.command()
def header() -> int:
    """Print the folder of the C headers. For cc -I "$(parity header)"."""
    click.echo(Path(__file__).parents[1] / "include")
    return 0


@cli.command()
@with_options((MODEL, WEIGHTS))
@click.option("--json", "json_path", help="Write the findings as JSON (- is stdout).")
def doctor(**options: object) -> int:
    """Say what this machine can run. And why not, with the next step."""
    from parity.cli.doctor import run_doctor

    return run_doctor(**options)  # type: ignore[arg-type]


@cli.command()
@click.argument("output", metavar="OUT.gguf", type=Path)
@with_options((MODEL,))
@click.option("--seed", default=7, show_default=True, help="Of a preset's weights.")
@with_options((WEIGHTS,))
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def export(output: Path, **options: object) -> int:
    """Write a model as a GGUF file. Which llama.cpp loads, and parity reads back bit for bit."""
    from parity.cli.exporting import run_export

    return run_export(output, **options)  # type: ignore[arg-type]


cli.add_command(baseline)
cli.add_command(gate)
