"""``parity order`` as typed: what it prints, its files, its exit statuses and its refusals."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.order import table as tables
from parity.order.answer import Answer
from parity.order.file import read_order
from parity.order.record import read_table
from tests.cli_runner import Result, run_cli
from tests.order import foreign_sums

OWN = "tests.order.foreign_sums"
SMALL = ("--K", "16", "--outputs", "2000")


def order(op: str, *words: str) -> Result:
    return run_cli("order", op, *SMALL, *words)


def own(name: str, terms: str, *words: str) -> Result:
    outputs = ("--N", "8") if terms == "products" else ()
    return order(f"{OWN}:{name}", "--terms", terms, *outputs, *words)


def lines(result: Result) -> list[str]:
    return [line.rstrip() for line in result.stdout.splitlines()]


# --- green ----------------------------------------------------------------------------------------


def test_one_tree() -> None:
    result = own("ascending", "products")
    assert result.status == 0, result.stderr
    found = lines(result)
    assert found[0] == "TREE  at M 1"
    assert found[2] == f"  op       {OWN}:ascending f32, K 16, N 8, cpu"
    assert found[4].split() == ["M", "verdict", "tree", "digest", "probes", "seconds"]
    assert re.fullmatch(r"  1  tree     chain\[0\.\.15\] +[0-9a-f]{16} +[\d,]+ +[\d.]+", found[5])
    assert any("named" in line and "contract 1.5" in line for line in found)
    assert max(map(len, found)) <= 80
    assert result.stderr == ""


def test_the_batch_changes_the_tree() -> None:
    result = own("by_batch", "products", "--M", "1,3,2")
    assert result.status == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "2 trees over 3 batch sizes" in text
    assert "M = 3 splits K into 2 x 8, M = 1 does not: this is why the bits change" in text
    assert "M 3 and 2: one tree, 2,000 outputs equal" in text
    assert re.search(r"M 1 and 3: two trees, \d+ of \d[\d,]* outputs differ; first M = 1: ", text)


@pytest.mark.parametrize(
    ("name", "terms"), [("ascending_values", "values"), ("squares", "squares")]
)
def test_sums_of_one_argument(name: str, terms: str) -> None:
    result = own(name, terms, "--M", "1,4", "-q")
    assert result.status == 0, result.stdout
    assert result.stdout == f"tree: the same at M 1, 4: {OWN}:{name} f32, K 16, cpu\n"


def test_numpy_by_name() -> None:
    result = order("numpy.sum", "--M", "2", "-q")
    assert (result.status, result.stdout) == (0, "tree: at M 2: numpy.sum f32, K 16, cpu\n")


def test_a_sum_of_one_term() -> None:
    """Noise of one term would be -0 alone, which NumPy gives back as 0."""
    result = run_cli("order", "numpy.sum", "--K", "1", "-q")
    assert (result.status, result.stdout) == (0, "tree: at M 1: numpy.sum f32, K 1, cpu\n")


@pytest.mark.parametrize(("asked", "compared"), [((), 65_536), (("--outputs", "3000"), 3000)])
def test_time_ends_a_comparison_whose_size_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], compared: int
) -> None:
    monkeypatch.setattr("parity.order.bits.SECONDS", 0.0)
    words = ("--terms", "products", "--K", "16", "--N", "8", "--M", "2,3", *asked)
    result = run_cli("order", f"{OWN}:by_batch", *words)
    assert result.status == 0, result.stderr
    assert f"M 2 and 3: one tree, {compared:,} outputs equal" in " ".join(result.stdout.split())


def test_no_outputs_are_compared_when_none_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    result = own("by_batch", "products", "--M", "1,3", "--outputs", "0", "--json", str(path))
    found = read_table(path.read_text(), "found.json")
    assert result.status == 0
    assert found is not None
    assert found.bits == []
    assert [row.tree for row in found.rows] == [1, 2]


# --- red ------------------------------------------------------------------------------------------

PLANTED = [
    # An order that depends on the data; masks, which have few sizes, do not show it.
    ("small_first_if_even", "values", "tree, not explained", r"noise: \d+ of 1,024 rows differ"),
    ("sorted_first", "values", "tree, not explained", r"noise: \d+ of 1,024 rows differ"),
    ("kahan", "values", "tree, not explained", r"noise: \d+ of 1,024 rows differ"),
    # Another order where the array does not start at a cache line.
    ("by_alignment", "values", "no tree", r"leaf \d+ and leaf \d+ meet|\d+ of \d+ counts contr"),
    # Another order at each call.
    ("turning", "values", "no tree", r"leaf \d+ and leaf \d+ meet in an addition of \d+ leaves"),
    # A wrong --terms: squares told as values, values told as squares.
    ("squares", "values", "no tree", r"big and -big alone gave \S+"),
    ("ascending_values", "squares", "no tree", r"contradict|meet|gave"),
    # The last row of a batch in another order.
    ("last_row_apart", "products", "no tree", r"row \d+: batch row 2 gave \S+ and batch row 0 \S+"),
]


@pytest.mark.parametrize(
    ("name", "terms", "verdict", "said"), PLANTED, ids=[f"{n} as {t}" for n, t, _, _ in PLANTED]
)
def test_red_no_order(name: str, terms: str, verdict: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.order.json"
    result = own(name, terms, "--M", "3", "--out", str(path))
    assert result.status == 1, result.stdout
    assert lines(result)[0] == f"{verdict.upper()}  at M 3"
    text = " ".join(result.stdout.split())
    assert re.search(f"M 3: {verdict} {said}", text), text
    assert f"note no order file for M = 3: {verdict}" in text
    assert "reproduce: parity order" in text
    assert not path.exists()


def test_red_a_planted_wrong_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit in the last place of one row: the op is not explained, and the row is shown."""
    from parity.order import twin

    true = twin.evaluate

    def wrong(order: Any, x: Any, w: Any) -> Any:
        found = true(order, x, w)
        found[-1:].view(np.int32)[...] ^= 1
        return found

    monkeypatch.setattr(twin, "evaluate", wrong)
    result = own("ascending", "products")
    assert result.status == 1
    text = " ".join(result.stdout.split())
    assert text.startswith("TREE, NOT EXPLAINED at M 1 ")
    match = re.search(
        r"noise: 16 of 1,024 rows differ from the twin, first row 63: the op gave ([0-9a-f]{8}) "
        r"\(\S+\), the order gives ([0-9a-f]{8})",
        text,
    )
    assert match, text
    assert int(match[1], 16) ^ int(match[2], 16) == 1


def test_red_rows_asked_later_are_not_the_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The op adds otherwise once its rows are recorded: no file is kept, and nothing is green."""
    true = tables.recorded

    def later(*given: Any) -> Any:
        monkeypatch.setitem(foreign_sums.LATER, "otherwise", True)
        return true(*given)

    monkeypatch.setattr(tables, "recorded", later)
    kept, looped = tmp_path / "kept.order.json", tmp_path / "kept.py"
    files = ("--rows", "40", "--out", str(kept), "--loops", str(looped))
    result = own("changed_later", "values", "--M", "4", *files)
    assert result.status == 1
    assert lines(result)[0] == "TREE, NOT EXPLAINED  at M 4"
    text = " ".join(result.stdout.split())
    assert re.search(r"rows: \S+: \d+ of 40 rows asked later are not what its tree gives", text)
    assert "note no order file for M = 4: tree, not explained" in text
    assert "--rows 40 --out" in text.partition("reproduce:")[2]
    assert list(tmp_path.iterdir()) == []


def test_red_one_tree_but_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of M = 1 is given for M = 3 too, whose order is another: the bits say so."""
    true = tables.reveal
    kept: list[Answer] = []

    def first_again(op: Any, *, seed: int) -> Answer:
        kept.append(true(op, seed=seed))
        return kept[0]

    monkeypatch.setattr(tables, "reveal", first_again)
    result = own("by_batch", "products", "--M", "1,3")
    assert result.status == 1
    assert lines(result)[0] == "CONTRADICTED  the bits of M 1 and 3 say otherwise"
    text = " ".join(result.stdout.split())
    assert re.search(
        r"M 1 and 3: one tree, but \d[\d,]* of 2,000 outputs differ; first M = 1", text
    )
    assert "the trees and the bits contradict each other" in text


def test_red_two_trees_but_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """M = 3 is said to be added in another order than it is."""
    true = tables.reveal
    halves = true(_opened("by_batch", 3), seed=1)

    def other(op: Any, *, seed: int) -> Answer:
        found = true(op, seed=seed)
        return found if op.key["shape"] == "w (8, 16)" else replace(found, order=halves.order)

    monkeypatch.setattr(tables, "reveal", other)
    result = own("rows_at_once", "products", "--M", "1,3")
    assert result.status == 1
    text = " ".join(result.stdout.split())
    assert "M 1 and 3: two trees, but none of 2,000 outputs differs" in text
    assert lines(result)[0].startswith("CONTRADICTED  ")


def _opened(name: str, M: int) -> Any:
    from parity.order.sums import Ask, open_op

    return open_op(Ask(f"{OWN}:{name}", 16, 8, terms="products"), M)


# --- refusals -------------------------------------------------------------------------------------

REFUSED = [
    (("sum",), 2, "op 'sum' is no FAMILY.NAME and no module:function"),
    (("numpy.sums",), 2, "no op 'numpy.sums'"),
    (("nunpy.sum",), 2, "no family of sums 'nunpy'"),
    (("numpy.sum", "--K", "0"), 2, "--K 0: not between 1 and 1,048,576"),
    (("numpy.sum", "--N", "9999999"), 2, "--N 9999999: not between 1 and 1,048,576"),
    (("numpy.sum", "--M", "1,x"), 2, "--M: 'x' is not a number or a range of at most six digits"),
    (("numpy.sum", "--M", "0"), 2, "--M 0: nothing to run"),
    (("numpy.sum", "--dtype", "f64"), 2, "Invalid value for '--dtype'"),
    (("numpy.sum", "--seed", "-1"), 2, "--seed -1: not between 0 and 4,294,967,295"),
    (("numpy.sum", "--outputs", "-1"), 2, "--outputs -1: not between 0 and"),
    (("numpy.sum", "--N", "8"), 2, "--N 8: numpy.sum has one sum a row, no N"),
    (("numpy.dot", "--N", "8"), 2, "--N 8: numpy.dot has one sum a row, no N"),
    (("cpu.rmsnorm", "--N", "8"), 2, "--N 8: cpu.rmsnorm has one sum a row, no N"),
    (
        (f"{OWN}:squares", "--terms", "squares", "--N", "8"),
        2,
        f"--N 8: {OWN}:squares has one sum a row, no N",
    ),
    (("numpy.sum", "--rows", "8"), 2, "--rows 8: rows of no order file"),
    (("numpy.sum", "--rows", "99999"), 2, "--rows 99999: not between 0 and 65,536"),
    (("numpy.sum", "--threads", "0"), 2, "--threads 0: not between 1 and 4,096"),
    (("numpy.sum", "--terms", "values"), 2, "--terms values: numpy.sum is known"),
    (("numpy.sum", "--out", "x.json"), 2, "x.json: its name does not end in .order.json"),
    (("numpy.sum", "--loops", ".py"), 2, ".py: its name does not end in .py"),
    (("numpy.sum", "--json", "/nowhere/x"), 2, "/nowhere/x: cannot be written"),
    ((f"{OWN}:squares",), 2, f"{OWN}:squares: what does it sum?"),
    ((f"{OWN}:squares", "--terms", "products"), 2, f"op {OWN}:squares raised TypeError"),
    ((f"{OWN}:raises", "--terms", "values"), 2, f"op {OWN}:raises raised RuntimeError: no"),
    (("nothing.here:f", "--terms", "values"), 2, "op nothing.here:f: nothing.here cannot be"),
]


@pytest.mark.parametrize(
    ("words", "status", "said"), REFUSED, ids=[" ".join(r[0]) for r in REFUSED]
)
def test_red_refused(words: tuple[str, ...], status: int, said: str) -> None:
    result = run_cli("order", *words)
    assert result.status == status
    told = result.stderr.splitlines()
    assert told[0].startswith(f"parity: {said}"), told
    assert len(told) == 2
    assert told[1].startswith("  next: ")
    assert result.stdout == ""


def test_red_without_a_device() -> None:
    result = run_cli("order", "cublas.matmul", "--device", "cuda")
    if result.status == 0:
        pytest.skip("this machine has CuPy and a GPU")
    assert result.status == 3
    assert result.stderr.splitlines()[0].startswith("parity: not run: cuda: ")
    assert result.stderr.splitlines()[1] == "  next: cublas needs CuPy and a CUDA device"


def test_red_too_large_for_memory() -> None:
    result = run_cli("order", "numpy.matmul", "--K", "1048576", "--N", "1048576")
    assert result.status == 3
    told = result.stderr.splitlines()
    assert told[0].startswith(
        "parity: not run: numpy.matmul: not enough memory for K 1,048,576, N 1,048,576, M 1: about "
    )
    assert told[1:] == ["  next: write a smaller --N or --M"]


def test_red_the_same_file_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "same.json")
    result = order("numpy.sum", "--json", path, "--html", path)
    assert result.status == 2
    assert result.stderr.startswith(f"parity: {path}: already taken by another report")
    assert not Path(path).exists()


def test_red_loops_over_the_ops_own_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "only_source_of_mine.py"
    source.write_text("def total(w):\n    return w.sum(axis=1)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("--terms", "values", "--loops", source.name)
    result = order("only_source_of_mine:total", *words)
    assert result.status == 2
    assert result.stderr.startswith(f"parity: {source.name}: already taken by the input ")
    assert source.read_text().startswith("def total")


# --- files ----------------------------------------------------------------------------------------


def test_files_of_several_sizes(tmp_path: Path) -> None:
    stem = tmp_path / "two.order.json"
    result = own("by_batch", "products", "--M", "1,3", "--out", str(stem), "--rows", "40")
    assert result.status == 0, result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["two.m1.order.json", "two.m3.order.json"]
    found = [read_order(tmp_path / f"two.m{size}.order.json") for size in (1, 3)]
    assert found[0].order.digest() != found[1].order.digest()
    assert [[len(part.out) for part in one.rows] for one in found] == [[10] * 4] * 2
    assert found[1].key["asked"] == "--K 16 --N 8 --M 3 --dtype f32 --device cpu --terms products"


def test_json_is_rendered_again(tmp_path: Path) -> None:
    path, page = tmp_path / "found.json", tmp_path / "page.html"
    first = own("by_batch", "products", "--M", "1,3", "--json", str(path))
    again = run_cli("report", str(path), "--html", str(page))
    assert again.status == first.status == 0
    assert again.stdout == first.stdout
    assert page.read_text(encoding="ascii").startswith("<!doctype html>")
    red = own("turning", "values", "--json", str(path))
    assert run_cli("report", str(path)).status == red.status == 1
    refused = run_cli("report", str(path), "--csv", str(tmp_path / "x.csv"))
    assert refused.status == 2
    assert "a parity-order-table file has no csv report" in refused.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda body: body.update(version=2),
            "version 2 of parity-order-table, this parity reads 1",
        ),
        (lambda body: body.pop("rows"), "damaged: 'rows'"),
        (lambda body: body["rows"][0].pop("M"), "damaged: "),
        (lambda body: body["rows"][0].update(M="1"), "damaged: rows[0].M is of another kind"),
        (lambda body: body.update(more=1), "damaged: "),
    ],
)
def test_red_damaged_json(tmp_path: Path, change: Any, said: str) -> None:
    path = tmp_path / "found.json"
    order("numpy.sum", "--json", str(path))
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    result = run_cli("report", str(path))
    assert result.status == 2
    assert result.stderr.startswith(f"parity: {path}: {said}")
    assert len(result.stderr.splitlines()) == 2


# --- replay ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The order file of four partial sums."""
    path = tmp_path_factory.mktemp("kept") / "four.order.json"
    result = own("four_partials", "products", "--out", str(path), "--rows", "64")
    assert result.status == 0, result.stderr
    return path


def test_replay(kept: Path) -> None:
    result = run_cli("replay-order", str(kept))
    head = "SAME  64 of 64 rows have the recorded bits"
    assert (result.status, lines(result)[0]) == (0, head)
    assert max(map(len, lines(result))) <= 80
    quiet = run_cli("replay-order", str(kept), "-q")
    assert quiet.stdout == f"same: {OWN}:four_partials: 64 of 64 rows have the recorded bits\n"


def test_the_op_is_asked_again(kept: Path) -> None:
    result = run_cli("replay-order", str(kept), "--device", "cpu")
    assert result.status == 0, result.stdout
    assert lines(result)[0] == "SAME  it is this tree here too, certified and held to noise"


def test_red_the_op_has_changed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.order import foreign_sums

    monkeypatch.setattr(foreign_sums, "four_partials", foreign_sums.ascending)
    result = run_cli("replay-order", str(kept), "--device", "cpu")
    assert result.status == 1
    text = " ".join(result.stdout.split())
    assert text.startswith("DIVERGED no tree here evidence ")
    assert re.search(r"evidence \d+ of 47 counts contradict the tree: leaves", text)


def test_red_replayed_by_a_wrong_twin(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parity.order import replay

    true = replay.evaluate

    def wrong(order: Any, x: Any, w: Any) -> Any:
        found = true(order, x, w)
        found[5:6].view(np.int32)[...] ^= 1
        return found

    monkeypatch.setattr(replay, "evaluate", wrong)
    result = run_cli("replay-order", str(kept))
    assert result.status == 1
    found = lines(result)
    assert found[0] == "DIVERGED  60 of 64 rows have the recorded bits"
    told = r"  first    row 5: recorded [0-9a-f]{8} \(\S+\), replayed [0-9a-f]{8} \(\S+\)"
    assert re.fullmatch(told, found[2])


def test_red_replay_refused(kept: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.order.json"
    damaged.write_text(kept.read_text().replace("chain[0..12 step 4]", "chain[0..12 step 3]"))
    for path, said in (
        (damaged, "damaged: its check does not fit what it holds"),
        (tmp_path / "none.order.json", "No such file or directory"),
    ):
        result = run_cli("replay-order", str(path))
        assert result.status == 2
        assert result.stderr.splitlines()[0] == f"parity: {path}: {said}"
        assert len(result.stderr.splitlines()) == 2
    measured = Path(__file__).parents[1] / "golden/order/h200_linear_bf16_k1024_m1.order.json"
    result = run_cli("replay-order", str(measured), "--device", "cpu")
    assert result.status == 2
    told = ["parity: torch.linear: the file does not say how its op is called"]
    assert result.stderr.splitlines() == [*told, "  next: replay it without --device"]
    rowless = tmp_path / "rowless.order.json"
    assert own("four_partials", "products", "--out", str(rowless), "--rows", "0").status == 0
    result = run_cli("replay-order", str(rowless))
    assert result.status == 3
    assert "the file holds no rows to replay" in result.stderr
    assert run_cli("replay-order", str(rowless), "--device", "cpu").status == 0
