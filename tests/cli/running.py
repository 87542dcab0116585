"""Short runs of the command line and their divergence trees."""

from __future__ import annotations

from pathlib import Path

from parity.tree import Tree
from tests.cli_runner import Result, run_cli

ENGINES = "tests.cli.engines_for_tests"
SHORT = ("--tokens", "1,2,3", "--n", "3")  # decodes t3, t4 and t5
STEP_KEYS = 4 * 11 + 2  # keys a step of moe-tiny


def diff(tmp_path: Path, *words: str) -> tuple[int, Tree]:
    """Status and tree of ``parity diff WORDS`` on the short run."""
    path = tmp_path / "run.json"
    result = run_cli("diff", *SHORT, *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def faulty(name: str, **options: object) -> str:
    """Spec of a faulty engine with its options."""
    return f"{ENGINES}:{name}" + "".join(f"@{key}={value}" for key, value in options.items())


def written_dump(tmp_path: Path, name: str = "ref.dump", *words: str) -> Path:
    """A dump of the short run by the cpu engine."""
    path = tmp_path / name
    result = run_cli("dump", "--engine", "cpu", "-o", str(path), *SHORT, *words)
    assert result.status == 0, result.stderr
    return path


def said(result: Result) -> tuple[int, str, str]:
    """Status, stdout and stderr, to be compared at once."""
    return result.status, result.stdout, result.stderr
