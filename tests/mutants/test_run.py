"""The driver of the mutation tests: what it mutates, what it counts, and when it ends red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mutants import run

SOURCE = """
class One:
    @property
    def two(self) -> int:
        return 2

    @staticmethod
    def three() -> int:
        return 3


@_compiled(parallel=True)
def four() -> int:
    return 4
"""


def test_decorated_functions_are_made_plain() -> None:
    """mutmut passes over what is decorated; what they do stays."""
    made = run.plain(SOURCE)
    assert "@property" not in made
    assert "@_compiled" not in made
    assert "@staticmethod" in made
    namespace: dict[str, object] = {}
    exec(made, namespace)
    assert namespace["One"]().two == 2  # type: ignore[operator]
    assert namespace["four"]() == 4  # type: ignore[operator]


def test_every_module_and_test_of_a_group_is_there() -> None:
    for group in run.GROUPS.values():
        for path in (*group.modules, *group.tests):
            assert (run.ROOT / path.partition("::")[0]).is_file(), path


def group_of(folder: Path, codes: dict[str, int | None]) -> run.Group:
    """A finished group of one module, as mutmut leaves it."""
    (folder / "mutants" / "parity").mkdir(parents=True)
    meta = folder / "mutants" / "parity" / "one.py.meta"
    meta.write_text(json.dumps({"exit_code_by_key": codes}))
    return run.Group(("parity/one.py",), ())


def test_killed_hung_and_unreached_mutants_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "changes", lambda names, scratch: {name: ["- a"] for name in names})
    group = group_of(tmp_path, {"a": 1, "b": 3, "hangs": 36, "lives": 0, "unreached": 33})
    (score,) = run.scores(group, tmp_path)
    assert (score.total, score.killed, list(score.survivors)) == (5, 3, ["lives", "unreached"])
    assert score.per_cent == 60.0
    rows = [line.split() for line in run.table([score])[1:3]]
    assert rows == [[name, "5", "3", "2", "60.0", "%"] for name in ("parity/one.py", "all")]
    assert run.table([score])[3:] == ["", "lives", "- a", "", "unreached", "- a"]


def test_a_mutant_without_a_result_is_no_score(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"mutants with no result: \{'b': None\}"):
        list(run.scores(group_of(tmp_path, {"a": 1, "b": None}), tmp_path))


@pytest.mark.parametrize(("killed", "status"), [(9, 0), (8, 1)])
def test_a_module_below_the_least_score_ends_red(
    killed: int, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alive = {f"m{at}": ["- a", "+ b"] for at in range(10 - killed)}
    monkeypatch.setattr(run, "build", lambda group, scratch: None)
    monkeypatch.setattr(run, "mutate", lambda scratch, jobs: None)
    monkeypatch.setattr(run, "scores", lambda group, scratch: [run.Score("one", killed, alive)])
    monkeypatch.setattr(run, "version", lambda name: "0")
    assert run.main(["tally"]) == status
    assert ("m0" in capsys.readouterr().out) is True


def test_an_unknown_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run.main(["tallies"])
    assert caught.value.code == 2
    assert "no group tallies; there are values, " in capsys.readouterr().err
