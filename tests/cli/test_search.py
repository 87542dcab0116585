"""parity diff --bisect: the same first key as the linear comparison, at a fraction of the looks."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2
from pathlib import Path

import pytest

from parity.cli.options import make_run
from parity.comparison.compare import compare_dumps
from parity.digests.chain import bisect_first
from parity.dump import MAIN, Dump
from parity.dumps.reader import read_dump
from parity.runs.run import Run
from parity.runs.search import fold_layers
from tests.cli.running import ENGINES, SHORT, diff, faulty, said, written_dump
from tests.cli_runner import run_cli

LAYERS = 3 * 5  # places of the short run: four layers and the end of each step

# First, middle and last layer at first, middle and last position, and the ends of steps.
PLACES = (
    *("t3_l0_nrm", "t3_l0_x", "t3_l2_attn", "t3_l3_x", "t3_final_normed", "t3_logits"),
    *("t4_l0_kraw", "t4_l1_ks", "t4_l3_v", "t4_logits"),
    *("t5_l0_nrm", "t5_l2_qrope", "t5_l3_ores", "t5_l3_x", "t5_final_normed", "t5_logits"),
)


def bound(places: int) -> int:
    """Digests that a bisection of ``places`` may read, both sides together."""
    return 2 * (ceil(log2(places)) + 1)


@pytest.fixture(scope="module")
def run() -> Run:
    return make_run(
        **{"model": "moe-tiny", "weights": "q4", "seed": 7, "tokens": "1,2,3", "n": 3},
        **{"fields": "", "dump_prefill": False, "hash_name": "fnv1a64"},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    return read_dump(written_dump(tmp_path_factory.mktemp("search")))


@pytest.mark.parametrize("key", PLACES)
def test_same_first_key_as_the_linear_comparison(tmp_path: Path, key: str) -> None:
    dut = faulty("Moved", key=key)
    status, linear = diff(tmp_path, "--dut", dut)
    assert (status, linear.first) == (1, key)
    status, found = diff(tmp_path, "--dut", dut, "--bisect")
    assert (status, found.verdict, found.first) == (1, "diverged", key)
    assert found.search is not None
    assert found.search.layer == key.rsplit("_", 1)[0].removesuffix("_final")
    assert found.search.digests_total == 2 * LAYERS
    assert found.search.digests_read <= bound(LAYERS)
    assert found.search.runs == 4
    assert found.elements == linear.elements
    assert found.inputs == linear.inputs


def test_search_is_printed() -> None:
    dut = faulty("Moved", key="t4_l2_attn")
    red = run_cli("diff", *SHORT, "--dut", dut, "--bisect")
    assert "10 of 30 digests read, 4 runs, then layer t4_l2 with all its fields" in " ".join(
        red.stdout.split()
    )
    green = run_cli("diff", *SHORT, "--dut", "cpu", "--bisect")
    assert green.status == 0
    assert "2 of 30 digests read, 2 runs, no digest differs" in green.stdout
    assert "fired: 1 " in green.stdout


def test_key_on_one_side_only(tmp_path: Path) -> None:
    for ref, dut in ((faulty("Silent", key="t4_l1_vs"), "cpu"), ("cpu", "")):
        right = dut or faulty("Silent", key="t4_l1_vs")
        status, tree = diff(tmp_path, "--ref", ref, "--dut", right, "--bisect")
        assert (status, tree.first) == (1, "t4_l1_vs")


def test_side_that_differs_from_itself_is_unstable(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("Once"), "--bisect")
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t3_l3_x")
    assert tree.reason.startswith("dut differs from itself at t3_l3_x")
    status, tree = diff(tmp_path, "--ref", faulty("Once"), "--dut", "cpu", "--bisect")
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t3_l3_x")
    assert tree.reason.startswith("ref differs from itself at t3_l3_x")


def test_end_state_decides_where_no_key_differs(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("OldRow", steps=6), "--bisect")
    assert (status, tree.first) == (1, None)
    assert tree.reason == "end state differs, first at l3_k row 5 (position 5)"


def test_prefill_by_the_ref_needs_the_state() -> None:
    words = ("--dut", faulty("NoState"), "--prefill", "ref", "--bisect")
    assert said(run_cli("diff", *SHORT, *words)) == (
        3,
        "",
        f"parity: not run: {ENGINES}:NoState lacks the capability 'state', needed for "
        "--prefill ref\n  next: use --prefill own\n",
    )


# The folded digests by themselves: a fault at every key of the run.


def test_every_key_is_found_in_its_layer(run: Run, whole: Dump) -> None:
    folded = [entry.digest for entry in fold_layers(whole, run).entries]
    assert len(folded) == len(set(folded)) == LAYERS
    for at, entry in enumerate(whole.entries):
        planted = replace(entry, digest=entry.digest ^ 1)
        entries = [*whole.entries[:at], planted, *whole.entries[at + 1 :]]
        changed = Dump(dict(whole.header), {MAIN: entries}, "changed")
        layers = fold_layers(changed, run)
        index, read = bisect_first(folded, [layer.digest for layer in layers.entries])
        assert index is not None
        assert read <= bound(LAYERS)
        place = layers.entries[index].key
        assert (place.pos, place.layer) == (entry.key.pos, entry.key.layer)
        assert compare_dumps(whole, changed).first == entry.key.tag


def test_other_type_alone_is_seen(run: Run, whole: Dump) -> None:
    last = whole.entries[-1]
    assert last.type is not None
    entries = [*whole.entries[:-1], replace(last, type=replace(last.type, dtype="f64"))]
    changed = fold_layers(Dump(dict(whole.header), {MAIN: entries}, "changed"), run)
    ref = [entry.digest for entry in fold_layers(whole, run).entries]
    assert bisect_first(ref, [entry.digest for entry in changed.entries])[0] == LAYERS - 1


def test_fold_goes_on_from_the_hash_of_the_run(run: Run, whole: Dump) -> None:
    other = fold_layers(whole, replace(run, hash_name="kestrel-fnv"))
    digests = {entry.digest for entry in fold_layers(whole, run).entries}
    assert digests.isdisjoint(entry.digest for entry in other.entries)
