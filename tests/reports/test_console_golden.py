"""The console report against stored texts: 80 columns for every verdict, 60 and 200 for one."""

import shutil
from pathlib import Path

import pytest

from parity_reports.console import ConsoleReport
from tests.reports import regold, trees


def test_every_golden_is_equal_and_none_is_stray() -> None:
    assert regold.changes(regold.goldens(), regold.FOLDER) == []


@pytest.mark.parametrize("fault", ["digit", "line end", "missing file", "stray file"])
def test_red_golden_check_sees(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "golden"
    shutil.copytree(regold.FOLDER, folder)
    path = folder / "red.txt"
    if fault == "digit":
        path.write_text(path.read_text(encoding="utf-8").replace("3e0e01e2", "3e0e01e3"), "utf-8")
    elif fault == "line end":
        path.write_text(path.read_text(encoding="utf-8").removesuffix("\n"), "utf-8")
    elif fault == "missing file":
        path.unlink()
    else:
        (folder / "odd.txt").write_text("x")
    assert regold.changes(regold.goldens(), folder)


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
