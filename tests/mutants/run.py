"""Mutation testing of the comparison and probe code: how many planted faults do the tests see?

Each group of modules is copied to a scratch folder and mutated there by mutmut, which runs the
tests that reach the mutated function; nothing in the tree is changed. Properties and compiled
functions, which mutmut passes over as decorated, are made plain in the copy. Ends 1 where a
module's score is below ``--least``, or where ``reasons.toml`` does not say why a mutant survives.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from platform import python_version

ROOT = Path(__file__).parents[2]
REASONS = Path(__file__).with_name("reasons.toml")
WRITTEN = "<!-- From here on written by tests/mutants/run.py --markdown -->"
LEAST = 90.0  # per cent of a module's mutants
KILLED, SURVIVED = (1, 3), (0, 33)  # mutmut's codes; 33: no test reaches the function
TIMED_OUT = (-24, 24, 36, 152, 255)  # killed too: the tests would hang
KNOWN = (*KILLED, *SURVIVED, *TIMED_OUT)
NOT_JUSTIFIED = "Not justified"
SETTINGS = "use_git_change_detection = false\ntrack_dependencies = false\n"
IGNORED = shutil.ignore_patterns("__pycache__", "mutants", "golden", "study", "gpu", "packaging")

# In the scratch folder: the changed lines of each mutant named on stdin, as JSON.
SHOW = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
names = sys.stdin.read().split()
diffs = {name: get_diff_for_mutant(name).splitlines() for name in names}
changed = {name: [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
           for name, lines in diffs.items()}
print(json.dumps(changed))
"""

# A failing example is a killed mutant: nothing is gained by making it small.
PROFILE = """
from hypothesis import Phase, settings
settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("mutants")
"""


@dataclass(frozen=True)
class Group:
    """``modules`` and ``tests``: paths from the root; ``drop``: tests that are too slow here."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    drop: tuple[str, ...] = ()


GROUPS = {
    "values": Group(
        (
            *("parity/comparison/elements.py", "parity/comparison/states.py"),
            *("parity/dumps/greedy.py", "parity/explain/margin.py"),
        ),
        (
            *(f"tests/core/test_{name}.py" for name in ("elements", "hardening_elements")),
            *(f"tests/core/test_{name}.py" for name in ("greedy", "greedy_choice", "margin")),
            *("tests/cli/test_states.py", "tests/core/test_mutants_values.py"),
        ),
        ("test_any_bits_add_up_and_no_difference_is_lost",),
    ),
    "verdict": Group(
        (
            *("parity/runs/control.py", "parity/runs/stability.py"),
            *("parity/kinds.py", "parity/status.py"),
        ),
        (
            "tests/cli/test_control.py",
            *("tests/core/test_tree.py", "tests/core/test_comparison.py"),
            "tests/core/test_mutants_verdict.py",
        ),
    ),
    "births": Group(
        ("parity/explain/births.py",),
        (
            "tests/core/test_births_flow.py",
            *("tests/core/test_mutants_births.py", "tests/core/test_mutants_flow.py"),
        ),
    ),
    "keys": Group(
        ("parity/comparison/compare.py", "parity/comparison/matching.py"),
        (
            *("tests/core/test_comparison.py", "tests/core/test_hardening_partial.py"),
            "tests/core/test_hardening_columns.py::test_of_a_large_match_the_same_rows_are_listed"
            "_wherever_the_limit_falls",
            "tests/core/test_mutants_keys.py",
        ),
    ),
    "aliases": Group(
        ("parity/comparison/alias.py", "parity/comparison/alias_tensors.py"),
        tuple(f"tests/core/test_{name}.py" for name in ("alias", "alias_tensors", "mutants_alias")),
    ),
    "places": Group(
        (
            "parity/keys.py",
            "parity/digests/key_layout.py",
            "parity/comparison/parting.py",
            "parity/comparison/impossible.py",
        ),
        (
            *(f"tests/core/test_{name}.py" for name in ("keys", "comparison", "impossible")),
            "tests/core/test_digest_file.py",
            *("tests/core/test_mutants_places.py", "tests/core/test_mutants_layout.py"),
        ),
    ),
    "digests": Group(
        ("parity/digests/chain.py", "parity/digests/tree.py", "parity/digests/search.py"),
        (
            *("tests/core/test_chain.py", "tests/core/test_digest_tree.py"),
            "tests/core/test_mutants_digests.py",
        ),
        (
            *("test_first_key_is_that_of_the_linear_scan", "test_bisection_names_the_key"),
            *("test_fuzz_altered_values", "test_line_order_of_known", "test_layout_finds"),
        ),
    ),
    "probes": Group(
        tuple(
            f"probes/parity_probes/{name}.py"
            for name in ("blocks", "chunks", "isodiff", "rollback")
        ),
        (
            "tests/probes/test_mutants_blocks.py",
            "tests/probes/test_mutants_controls.py",
            "tests/probes/test_mutants_isodiff.py",
            "tests/probes/test_mutants_rollback.py",
        ),
    ),
    "tally": Group(
        ("probes/parity_probes/mathfn_tally.py",),
        ("tests/probes/test_mathfn_tally.py", "tests/probes/test_mutants_tally.py"),
    ),
}


@dataclass(frozen=True)
class Score:
    """Mutants of one module, by what became of them. ``survivors``: changed lines by name."""

    module: str
    killed: int
    survivors: dict[str, list[str]]

    @property
    def total(self) -> int:
        """All that were run."""
        return self.killed + len(self.survivors)

    @property
    def per_cent(self) -> float:
        """Killed, of all that were run."""
        return 100.0 * self.killed / self.total if self.total else 0.0


@dataclass(frozen=True)
class Reason:
    """Why some survivors tell nothing of the tests. ``where``: pairs of patterns, of which one
    must fit a survivor: the whole of its place, and a part of its changed lines."""

    text: str
    where: tuple[tuple[str, str], ...]

    def covers(self, name: str, changed: list[str]) -> bool:
        """Whether this is why the mutant survives."""
        place, lines = place_of(name), "\n".join(changed)
        return any(
            re.fullmatch(at, place) and re.search(what, lines, re.MULTILINE)
            for at, what in self.where
        )


def place_of(name: str) -> str:
    """``births.Flow._judge`` of mutmut's ``parity.explain.births.xǁFlowǁ_judge__mutmut_22``."""
    module, _, function = name.rpartition("__mutmut_")[0].rpartition(".")
    parts = function[1:].replace("property_", "").split("ǁ")
    parts = parts[1:] or [parts[0].removeprefix("_")]
    return ".".join([module.rpartition(".")[2], *parts])


def read_reasons(path: Path) -> list[Reason]:
    """``reason`` tables with ``text`` and ``where``, a list of [place, changed lines]."""
    tables = tomllib.loads(path.read_text())["reason"]
    return [Reason(one["text"], tuple((at, what) for at, what in one["where"])) for one in tables]


def justified(found: list[Score], reasons: list[Reason]) -> dict[str, dict[str, list[str]]]:
    """Survivors by the first reason that covers them, in the order of the reasons; "" for none."""
    grouped: dict[str, dict[str, list[str]]] = {reason.text: {} for reason in reasons}
    grouped[""] = {}
    for score in found:
        for name, changed in score.survivors.items():
            fits = (reason.text for reason in reasons if reason.covers(name, changed))
            grouped[next(fits, "")][name] = changed
    return {text: names for text, names in grouped.items() if names}


def plain(source: str) -> str:
    """The source with properties as methods behind ``property()``, and without ``_compiled``."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or len(node.decorator_list) != 1:
            continue
        decorator = ast.unparse(node.decorator_list[0])
        if decorator == "property":
            first, last, name = node.lineno - 1, (node.end_lineno or 0) - 1, node.name
            lines[first] = lines[first].replace(f"def {name}(", f"def property_{name}(")
            made = f"{name} = property(lambda self: self.property_{name}())"
            lines[last] += f"\n{' ' * node.col_offset}{made}"
        if decorator == "property" or decorator.startswith("_compiled("):
            lines[node.decorator_list[0].lineno - 1] = ""
    return "\n".join(lines)


def build(group: Group, scratch: Path) -> None:
    """Fill the scratch folder: packages at the top, so that mutmut's names are those of modules."""
    (scratch / "mutants").mkdir(parents=True)  # Python would remember that it is not there
    packages = list(dict.fromkeys(Path(module).parent for module in group.modules))
    for package in packages:
        shutil.copytree(ROOT / package, scratch / package.name, ignore=IGNORED)
    shutil.copytree(ROOT / "tests", scratch / "tests", ignore=IGNORED)
    chosen = [f"{Path(module).parent.name}/{Path(module).name}" for module in group.modules]
    for module in chosen:
        (scratch / module).write_text(plain((scratch / module).read_text()))
    with (scratch / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(PROFILE)
    arguments = ["-p", "no:cacheprovider", "-p", "no:xdist", "--no-gpu"]
    if group.drop:
        arguments += ["-k", " and ".join(f"not {name}" for name in group.drop)]
    tests = [path for path in group.tests if (ROOT / path.split("::")[0]).exists()]
    settings = (ROOT / "pyproject.toml").read_text().split("[tool.pytest.ini_options]")[1]
    values: dict[str, object] = {
        "source_paths": [package.name for package in packages],
        "only_mutate": chosen,
        "pytest_add_cli_args": arguments,
        "pytest_add_cli_args_test_selection": tests,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (scratch / "pyproject.toml").write_text(
        "\n".join(["[tool.pytest.ini_options]" + settings, "[tool.mutmut]", *lines, SETTINGS])
    )


def mutate(scratch: Path, jobs: int) -> None:
    """Run mutmut in the scratch folder; raises CalledProcessError where it cannot start."""
    paths = [scratch / "mutants", ROOT / "engines", ROOT / "reports", ROOT / "probes", ROOT]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]),
        # With OpenMP, a process that ran a kernel cannot be forked.
        **{"NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"},
    }
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(jobs)]
    subprocess.run(command, cwd=scratch, env=environment, check=True)


def scores(group: Group, scratch: Path) -> Iterator[Score]:
    """What mutmut wrote down, module by module."""
    for module in group.modules:
        path = scratch / "mutants" / Path(module).parent.name / f"{Path(module).name}.meta"
        codes: dict[str, int | None] = json.loads(path.read_text())["exit_code_by_key"]
        unknown = {name: code for name, code in codes.items() if code not in KNOWN}
        if unknown:
            raise SystemExit(f"mutants with no result: {unknown}")
        alive = [name for name, code in codes.items() if code in SURVIVED]
        yield Score(module, len(codes) - len(alive), changes(alive, scratch))


def changes(names: list[str], scratch: Path) -> dict[str, list[str]]:
    """The lines that each of the mutants changed, as in a diff."""
    command = [sys.executable, "-c", SHOW]
    told = {"cwd": scratch, "check": True, "capture_output": True, "text": True}
    shown = subprocess.run(command, input="\n".join(names), **told)  # type: ignore[call-overload]
    found: dict[str, list[str]] = json.loads(shown.stdout)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the groups and print a table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", default=list(GROUPS), metavar="group")
    parser.add_argument("--jobs", type=int, default=2, help="mutants run at once")
    parser.add_argument("--least", type=float, default=LEAST, help="per cent killed, a module")
    parser.add_argument("--keep", type=Path, help="scratch folder to keep (mutmut show NAME)")
    parser.add_argument("--read", action="store_true", help="run nothing: read what --keep kept")
    parser.add_argument("--markdown", type=Path, help="page whose generated part is written anew")
    asked = parser.parse_args(arguments)
    if asked.read and not asked.keep:
        parser.error("--read needs --keep, the folder of an earlier run")
    if unknown := set(asked.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    found: list[Score] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in asked.groups:
            scratch = (asked.keep or Path(temporary)) / name
            if not asked.read:
                shutil.rmtree(scratch, ignore_errors=True)
                build(GROUPS[name], scratch)
                mutate(scratch, asked.jobs)
            found += scores(GROUPS[name], scratch)
    reasons = justified(found, read_reasons(REASONS))
    print(f"mutmut {version('mutmut')}", *table(found, reasons), sep="\n")
    if asked.markdown:
        write_page(asked.markdown, page(found, reasons))
    return int("" in reasons or any(score.per_cent < asked.least for score in found))


def rows(found: list[Score]) -> list[tuple[str, int, int, int, str]]:
    """Module, mutants, killed, survived, score; then all together."""
    alive = {name: changed for score in found for name, changed in score.survivors.items()}
    total = Score("all", sum(score.killed for score in found), alive)
    return [
        (one.module, one.total, one.killed, len(one.survivors), f"{one.per_cent:.1f} %")
        for one in (*found, total)
    ]


def table(found: list[Score], reasons: dict[str, dict[str, list[str]]]) -> list[str]:
    """The scores; then the survivors and what they changed, those without a reason last."""
    lines = [f"{'module':34}  mutants  killed  alive   score"]
    lines += [
        f"{row[0]:34}  {row[1]:7}  {row[2]:6}  {row[3]:5}  {row[4]:>7}" for row in rows(found)
    ]
    for text, survivors in reasons.items():
        lines += ["", f"# {text or NOT_JUSTIFIED}"]
        for name, changed in survivors.items():
            lines += [name, *changed]
    return lines


def page(found: list[Score], reasons: dict[str, dict[str, list[str]]]) -> list[str]:
    """Markdown: the table of scores, then every survivor under its reason."""
    lines = [f"mutmut {version('mutmut')}, Python {python_version()}, {date.today()}.", ""]
    lines += ["| module | mutants | killed | survived | score |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in row)} |"
        for row in rows(found)
    ]
    lines += ["", "## Survivors", ""]
    for text, survivors in reasons.items():
        lines += [text or f"**{NOT_JUSTIFIED}.**", ""]
        for name, changed in survivors.items():
            before, after = (side_of(changed, sign) for sign in "-+")
            lines.append(f"* `{place_of(name)}`: {before} → {after}")
        lines.append("")
    return lines


def side_of(changed: list[str], sign: str) -> str:
    """The removed or the added lines as code."""
    return " ".join(f"``{line[1:].strip()}``" for line in changed if line[0] == sign) or "nothing"


def write_page(path: Path, lines: list[str]) -> None:
    """Keep what stands before the mark."""
    head = path.read_text().partition(WRITTEN)[0] if path.exists() else ""
    path.write_text("\n".join([f"{head}{WRITTEN}", "", *lines]).rstrip("\n") + "\n")


if __name__ == "__main__":
    sys.exit(main())
