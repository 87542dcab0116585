"""The driver of the mutation tests: what it mutates, what it counts, and when it ends red."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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
    told = run.table([score], {"why": {"lives": ["- a"]}, "": {"unreached": ["- a"]}})
    rows = [line.split() for line in told[1:3]]
    assert rows == [[name, "5", "3", "2", "60.0", "%"] for name in ("parity/one.py", "all")]
    assert told[3:] == ["", "# why", "lives", "- a", "", "# Not justified", "unreached", "- a"]


def test_a_mutant_without_a_result_is_no_score(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"mutants with no result: \{'b': None\}"):
        list(run.scores(group_of(tmp_path, {"a": 1, "b": None}), tmp_path))


REASON = """[[reason]]
text = "Only speed."
where = [["one.f", "b$"], ['two\\.C\\..*', ""]]
"""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The exit status of a run of which so many were killed, and these survived."""

    def run_of(killed: int, alive: dict[str, list[str]], *options: str) -> int:
        reasons = tmp_path / "reasons.toml"
        reasons.write_text(REASON)
        monkeypatch.setattr(run, "REASONS", reasons)
        monkeypatch.setattr(run, "build", lambda group, scratch: None)
        monkeypatch.setattr(run, "mutate", lambda scratch, jobs: None)
        monkeypatch.setattr(run, "scores", lambda group, scratch: [run.Score("one", killed, alive)])
        monkeypatch.setattr(run, "version", lambda name: "0")
        return run.main(["tally", *options])

    return run_of


@pytest.mark.parametrize(("killed", "status"), [(9, 0), (8, 1)])
def test_a_module_below_the_least_score_ends_red(
    killed: int, status: int, ran: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    alive = {f"p.one.x_f__mutmut_{at}": ["- a", "+ b"] for at in range(10 - killed)}
    assert ran(killed, alive) == status
    told = capsys.readouterr().out
    assert "# Only speed.\np.one.x_f__mutmut_0\n- a\n+ b" in told
    assert run.NOT_JUSTIFIED not in told


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [
        ("p.one.x_f__mutmut_1", "+ b", 0),
        ("p.two.xǁCǁg__mutmut_1", "+ c", 0),
        ("p.one.x_f__mutmut_1", "+ c", 1),  # another change
        ("p.one.x_ff__mutmut_1", "+ b", 1),  # another function
        ("p.two.x_C__mutmut_1", "+ b", 1),
        ("p.three.x_f__mutmut_1", "+ b", 1),  # another module
    ],
)
def test_a_survivor_without_a_reason_ends_red(
    name: str,
    change: str,
    status: int,
    ran: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    page = tmp_path / "mutants.md"
    assert ran(99, {name: ["- a", change]}, "--markdown", str(page)) == status
    told = capsys.readouterr().out
    assert (run.NOT_JUSTIFIED in told) is (run.NOT_JUSTIFIED in page.read_text()) is bool(status)
    assert ("Only speed." in told) is not bool(status)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("parity.explain.births.xǁFlowǁ_judge__mutmut_22", "births.Flow._judge"),
        ("parity.comparison.elements.x_compare_tensors__mutmut_26", "elements.compare_tensors"),
        ("parity_probes.blocks.x__filled__mutmut_11", "blocks._filled"),
        (
            "parity.digests.key_layout.xǁLayoutǁproperty_untyped__mutmut_3",
            "key_layout.Layout.untyped",
        ),
        (
            "parity.comparison.matching.xǁPartǁ__post_init____mutmut_1",
            "matching.Part.__post_init__",
        ),
    ],
)
def test_place_of_a_mutant(name: str, place: str) -> None:
    assert run.place_of(name) == place


def test_page_keeps_what_stands_before_the_mark(ran: Callable[..., int], tmp_path: Path) -> None:
    page = tmp_path / "mutants.md"
    page.write_text(f"# By hand\n\n{run.WRITTEN}\nof an earlier run\n")
    alive = {"p.one.x_f__mutmut_1": ["-    a", "+    b"], "p.one.x_g__mutmut_1": ["-c", "-e"]}
    assert ran(1998, alive, "--markdown", str(page)) == 1
    lines = page.read_text().splitlines()
    assert re.fullmatch(r"mutmut 0, Python 3\.[\d.]+, \d{4}-\d\d-\d\d\.", lines.pop(4))
    assert lines == [
        *("# By hand", "", run.WRITTEN, "", ""),
        *("| module | mutants | killed | survived | score |", "|---|---:|---:|---:|---:|"),
        *("| one | 2,000 | 1,998 | 2 | 99.9 % |", "| all | 2,000 | 1,998 | 2 | 99.9 % |"),
        *("", "## Survivors", "", "Only speed.", ""),
        *("* `one.f`: ``a`` → ``b``", "", "**Not justified.**", ""),
        *("* `one.g`: ``c`` ``e`` → nothing",),
    ]


def test_an_earlier_run_is_read_without_a_new_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = group_of(tmp_path / "tally", {"a": 1, "b": 1})
    monkeypatch.setattr(run, "GROUPS", {"tally": group})
    monkeypatch.setattr(run, "changes", lambda names, scratch: {})
    monkeypatch.setattr(run, "version", lambda name: "0")
    assert run.main(["--read", "--keep", str(tmp_path)]) == 0
    assert "100.0 %" in capsys.readouterr().out
    assert (tmp_path / "tally").is_dir()
    with pytest.raises(SystemExit) as caught:
        run.main(["--read"])
    assert caught.value.code == 2
    assert "--read needs --keep" in capsys.readouterr().err


def test_reasons_that_stand_in_the_tree_can_be_read() -> None:
    reasons = run.read_reasons(run.REASONS)
    assert len({reason.text for reason in reasons}) == len(reasons)
    modules = {Path(path).stem for group in run.GROUPS.values() for path in group.modules}
    for reason in reasons:
        assert reason.text.endswith("."), reason.text
        assert reason.where
        assert not reason.covers("parity.other.x_other__mutmut_1", ["-a", "+b"])
        for place, change in reason.where:
            named = place.partition("\\.")[0].strip("(").split("|")
            assert named == [".*"] or set(named) <= modules, place
            re.compile(change)


def test_an_unknown_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run.main(["tallies"])
    assert caught.value.code == 2
    assert "no group tallies; there are values, " in capsys.readouterr().err
