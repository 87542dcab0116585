"""The reports of every format against stored texts, byte for byte."""

import shutil
from pathlib import Path

import pytest

from parity_reports.console import ConsoleReport
from tests.reports import regold, trees


def test_every_golden_is_equal_and_none_is_stray() -> None:
    assert regold.changes(regold.goldens(), regold.FOLDER) == []


# A golden of each format, and a change that a presenter may make by mistake.
PLANTED = {
    "explained.txt": ("3e0e01e2", "3e0e01e3"),
    "explained_q.txt": ("born here", "born"),
    "explained.csv": ("born here", "inherited"),
    "explained.json": ('"version": 4', '"version": 5'),
    "explained.xml": ('failures="4"', 'failures="0"'),
    "explained.md": ("| `t33_l8_act` |", "| t33_l8_act |"),
    "explained.github": ("::error", "::notice"),
    "explained.page": ("h1: Diverged", "h1: Same"),
    "checks_red_and_green.page": ("h1: Diverged", "h1: Same"),
    "checks_red_and_green.txt": ("FAILED", "ok    "),
    "checks_red_and_green.xml": ("<failure ", "<skipped "),
    "checks_red_and_green.md": ("`isodiff` | diverged", "`isodiff` | same"),
    "checks_red_and_green.github": ("::error", "::warning"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(regold.FOLDER, tmp_path / "golden"))


@pytest.mark.parametrize("name", PLANTED)
def test_red_a_change_in_each_format_is_seen(folder: Path, name: str) -> None:
    old, new = PLANTED[name]
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    found = regold.changes(regold.goldens(), folder)
    assert found[:2] == [f"--- stored {name}", f"+++ made {name}"]
    assert sum(line.startswith("---") for line in found) == 1


def test_every_format_has_a_planted_change() -> None:
    suffixes = {Path(name).suffix for name in regold.goldens()}
    assert {Path(name).suffix for name in PLANTED} == suffixes


@pytest.mark.parametrize("fault", ["line end", "CRLF", "missing file", "stray file"])
def test_red_golden_check_sees(folder: Path, fault: str) -> None:
    path = folder / "red.txt"
    if fault == "line end":
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    elif fault == "CRLF":
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    elif fault == "missing file":
        path.unlink()
    else:
        (folder / "odd.txt").write_text("x")
    found = regold.changes(regold.goldens(), folder)
    wanted = {
        "line end": "line ends differ: red.txt",
        "CRLF": "line ends differ: red.txt",
        "missing file": "--- stored red.txt",
        "stray file": "stray golden: odd.txt",
    }
    assert found[0] == wanted[fault]


@pytest.mark.parametrize("name", trees.ALL)
def test_the_same_tree_gives_the_same_bytes(name: str) -> None:
    build = trees.ALL[name]
    assert ConsoleReport().render(build()) == ConsoleReport().render(build())


def test_the_four_mocked_runs_have_their_lines() -> None:
    """The lines of the agreed design, word for word, so that a regold cannot drift from it."""
    render = ConsoleReport().render
    green = render(trees.green()).splitlines()
    assert green[0] == "SAME  35 of 35 keys equal, bit for bit"
    assert green[2:] == [
        "  ref      cpu           parity_cpu 0.4.0, exact",
        "  dut      cuda:exact    parity_cuda 0.4.0, NVIDIA H200",
        "  model    moe-48 seed 7, weights digest equal on both sides",
        "  run      32 tokens prefilled by each side, then t32 to t35",
        "  states   equal before and after",
        "  level    bit (asked for: bit)",
        "  control  fired: 1 ULP at t34_l19_qrope element 12, found at that key",
        "  time     3.1 s",
    ]
    red = render(trees.red(), json_path="run.json").splitlines()
    assert red[0] == "DIVERGED  first at t33_l7_attn"
    assert (
        "  t33 layer 7: nrm ok · kraw ok · knorm ok · k ok · ks ok · v ok · vs ok ·\n"
        "  qrope ok · attn DIFF · ores DIFF · x DIFF"
    ) in "\n".join(red)
    assert "  6 of 128 elements differ, at most 1 ULP: head 1 4, head 2 2" in red
    row = "      [1, 2]  3e0e01e1  +1.38679042e-01   3e0e01e2  +1.38679057e-01    +1"
    assert row in red
    assert "  2 more in run.json" in red
    assert red[-3:] == ["  reproduce:", f"  {trees.COMMAND}", "  time     6.8 s"]
    start = render(trees.contaminated()).splitlines()
    assert start[0] == "DIVERGED  contaminated start, first at l0_ks row 3 (position 3)"
    decode = "  decode   from the ref's state: same, 35 of 35. Decoding is not to blame"
    assert decode in start
    assert render(trees.green(), quiet=True) == "same: 35 of 35 keys, level bit, control fired\n"
