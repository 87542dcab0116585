"""``parity demo``: what it prints."""

from __future__ import annotations

from parity.cli.reporting import write_lines
from parity.presenting import STDOUT, Options, write_report
from parity.progress import Progress
from parity.registry import REPORTS, find
from parity.status import ExitStatus

SEED, STEPS = 7, 4


def run_demo_command() -> int:
    """Run ``parity demo``; 0 when the planted fault was found and the clean run is the same."""
    from parity.model.generator import prompt_tokens
    from parity.model.model import synthetic
    from parity.runs.demo import PLANTED, run_demo
    from parity.runs.run import Run

    model = synthetic("moe-tiny", SEED)
    prompt = prompt_tokens(SEED, PLANTED.key.pos - 1, model.config.ids)
    run = Run(model=model, prompt=tuple(prompt), n=STEPS)
    with Progress() as progress:
        demo = run_demo(run, progress)
    console = find(REPORTS, "console").load()()
    where = f"{PLANTED.key} element {PLANTED.index}"
    write_lines([f"1  A fault is planted in the dut: 1 ULP at {where}.", ""], STDOUT)
    write_report(console, demo.planted, STDOUT, Options())
    write_lines(["", "2  The same comparison without it.", ""], STDOUT)
    write_report(console, demo.clean, STDOUT, Options())
    found = demo.planted.first or "nothing"
    verdict = "found at exactly that key" if demo.proved else f"NOT found there (found {found})"
    write_lines(
        ["", f"planted at {PLANTED.key}: {verdict}; clean run: {demo.clean.verdict}"], STDOUT
    )
    return int(ExitStatus.SAME if demo.proved else ExitStatus.DIVERGED)
