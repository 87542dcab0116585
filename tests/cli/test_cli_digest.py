"""parity digest: written, refused, and held against a file, a dump, tensors and a running side."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from parity.digests.file import read_digest
from parity.dumps.reader import read_dump
from parity.tree import Tree
from tests.cli.running import SHORT, STEP_KEYS, faulty, said, written_dump
from tests.cli_runner import Result, run_cli

KEYS = 3 * STEP_KEYS
COST = re.compile(r"found in (\d+) exchanges? of (\d+) keys; a digest shown here is of all keys")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dump of the short run and its digest file."""
    folder = tmp_path_factory.mktemp("digest")
    dump = written_dump(folder)
    result = run_cli("digest", str(dump), "-o", str(folder / "ref.digest"))
    text = (folder / "ref.digest").read_text()
    where = f"{KEYS} keys, {len(text):,} bytes written to {folder / 'ref.digest'}\n"
    assert said(result) == (0, "", where)
    return folder


def against(made: Path, side: str, *words: str, tmp: Path | None = None) -> tuple[Result, Tree]:
    """The digest file held against ``side``."""
    path = (tmp or made) / "found.json"
    path.unlink(missing_ok=True)
    words = (*words, "--json", str(path))
    result = run_cli("digest", str(made / "ref.digest"), "--against", side, *words)
    assert path.exists(), result.stderr
    return result, Tree.from_json(path.read_text())


def planted(made: Path, key: str) -> Path:
    """A copy of the dump with one digit of ``key`` changed."""
    path = made / "planted.dump"
    text = (made / "ref.dump").read_text()
    line = next(line for line in text.splitlines() if line.startswith(f"{key} "))
    tag, digest, *rest = line.split()
    other = " ".join([tag, f"{int(digest, 16) ^ 0x100:016x}", *rest])
    path.write_text(text.replace(line, other))
    return path


# --- two files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["t3_l0_nrm", "t4_l1_vs", "t4_logits", "t5_l3_x", "t5_logits"])
@pytest.mark.parametrize("form", ["dump", "digest", "64"])
def test_first_differing_key_of_two_files(made: Path, key: str, form: str) -> None:
    dut = planted(made, key)
    if form != "dump":
        bits = ("--bits", "64") if form == "64" else ()
        words = ("-o", str(made / "dut.digest"), "--force", *bits)
        assert run_cli("digest", str(dut), *words).status == 0
        dut = made / "dut.digest"
    result, tree = against(made, str(dut))
    assert (result.status, tree.verdict, tree.first) == (1, "diverged", key)
    assert result.stdout.startswith(f"DIVERGED  first at {key}\n")
    cost = COST.match(tree.notes[0])
    assert cost is not None
    assert int(cost[1]) <= 9  # ceil(log2(138)) + 1
    assert cost[2] == str(KEYS)
    assert (tree.counts.same, tree.counts.differ) == (_index(made, key), 1)
    assert tree.counts.not_comparable == KEYS - 1 - _index(made, key)


def _index(made: Path, key: str) -> int:
    return [entry.key.tag for entry in read_dump(made / "ref.dump").entries].index(key)


def test_equal_files_are_same_and_the_control_fires(made: Path) -> None:
    result, tree = against(made, str(made / "ref.digest"))
    assert (result.status, tree.verdict) == (0, "same")
    assert result.stdout.startswith(f"SAME  {KEYS} of {KEYS} keys equal, bit for bit, control: ")
    assert "control  fired: dump level, one digit changed at t" in result.stdout
    assert "found in 1 exchange of 138 keys" in tree.notes[0]
    other, _ = against(made, str(made / "ref.dump"), "--seed", "8")
    assert other.status == 0
    quiet = run_cli("digest", str(made / "ref.digest"), "--against", str(made / "ref.dump"), "-q")
    assert said(quiet) == (0, "same: 138 of 138 keys, level bit, control: dump level\n", "")


@pytest.mark.parametrize(("edit", "state"), [("drop", "missing"), ("add", "extra")])
def test_key_on_one_side_only_is_named(made: Path, edit: str, state: str) -> None:
    lines = (made / "ref.dump").read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("t4_l2_attn "))
    lines[at : at + 1] = [] if edit == "drop" else [lines[at], "t4_l2_mine 0000000000000001 f32[1]"]
    dut = made / "other.dump"
    dut.write_text("\n".join(lines) + "\n")
    result, tree = against(made, str(dut))
    key = "t4_l2_attn" if edit == "drop" else "t4_l2_mine"
    assert (result.status, tree.first, len(tree.keys)) == (1, key, KEYS + (edit == "add"))
    assert next(row.state for row in tree.keys if row.key == key) == state


def test_a_first_key_that_only_one_side_has_is_red(made: Path) -> None:
    """Nothing stands before it that could be compared: red all the same."""
    dut = made / "late.dump"
    lines = (made / "ref.dump").read_text().splitlines()
    dut.write_text("\n".join(line for line in lines if not line.startswith("t3_l0_nrm ")) + "\n")
    result, tree = against(made, str(dut))
    assert (result.status, tree.first) == (1, "t3_l0_nrm")
    assert "first at t3_l0_nrm, missing in the dut" in result.stdout


def test_tensor_files(tmp_path: Path) -> None:
    arrays = {f"w {at}": np.arange(4, dtype=np.float32) + at for at in range(9)}
    np.savez(tmp_path / "a.npz", **arrays)
    arrays["w 6"] = -arrays["w 6"]
    np.savez(tmp_path / "b.npz", **arrays)
    digest = str(tmp_path / "a.digest")
    assert run_cli("digest", str(tmp_path / "a.npz"), "-o", digest).status == 0
    result = run_cli("digest", digest, "--against", str(tmp_path / "b.npz"))
    assert result.status == 1
    assert result.stdout.startswith("DIVERGED  first at w 6\n")
    assert run_cli("digest", digest, "--against", str(tmp_path / "a.npz")).status == 0


def test_plain_digests_leave_types_out(made: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.digest"
    assert run_cli("digest", str(made / "ref.dump"), "--plain", "-o", str(plain)).status == 0
    refused = run_cli("digest", str(made / "ref.digest"), "--against", str(plain))
    assert said(refused) == (
        2,
        "",
        f"parity: {plain}: no dtype and shape of t3_l0_nrm, which {made / 'ref.digest'} has\n"
        "  next: write both again with parity digest --plain\n",
    )
    for sides in ((made / "ref.dump", plain), (plain, made / "ref.dump"), (plain, plain)):
        result = run_cli("digest", str(sides[0]), "--against", str(sides[1]))
        assert result.status == 0
        assert "dtype and shape not recorded" in result.stdout.splitlines()[0]


def test_all_reports(made: Path, tmp_path: Path) -> None:
    dut = str(planted(made, "t4_l1_attn"))
    names = {name: tmp_path / f"found.{name}" for name in ("json", "html", "csv", "junit")}
    words = [word for name, path in names.items() for word in (f"--{name}", str(path))]
    result = run_cli("digest", str(made / "ref.digest"), "--against", dut, "-q", *words)
    assert said(result) == (1, "diverged: t4_l1_attn, 1 of 138 keys, level greedy\n", "")
    assert all("t4_l1_attn" in path.read_text() for path in names.values())
    again = run_cli("report", str(names["json"]), "-q")
    assert said(again) == said(result)


# --- a file and a running side --------------------------------------------------------------------


@pytest.mark.parametrize("dut", ["cpu", "emu"])
def test_a_running_side_that_is_the_same(made: Path, dut: str) -> None:
    result, tree = against(made, dut, *SHORT)
    assert (result.status, tree.verdict, tree.counts.same) == (0, "same", KEYS)
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)
    assert re.search(r"control  fired: 1 \w+ at t\d_l?\d?_?\w+ element \d+, found", result.stdout)


@pytest.mark.parametrize("key", ["t3_l0_nrm", "t4_l2_attn", "t5_l3_x", "t5_logits"])
def test_a_running_side_that_differs(made: Path, key: str) -> None:
    result, tree = against(made, faulty("Moved", key=key), *SHORT)
    assert (result.status, tree.verdict, tree.first) == (1, "diverged", key)
    assert "of 138 keys" in tree.notes[0]
    if key == "t4_l2_attn":
        assert "attention (contract 1.8)" in result.stdout


def test_a_written_engine_run_is_its_dump(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.digest"
    assert run_cli("digest", "cpu", "-o", str(path), *SHORT).status == 0
    one, other = read_digest(path), read_digest(made / "ref.digest")
    assert (one.whole, one.layout, one.header) == (other.whole, other.layout, other.header)


def test_an_engine_as_the_ref_of_a_file(made: Path) -> None:
    dut = str(made / "ref.digest")
    assert run_cli("digest", "cpu", "--against", dut, *SHORT).status == 0
    red = run_cli("digest", faulty("Moved", key="t4_l2_attn"), "--against", dut, *SHORT)
    assert (red.status, red.stdout.splitlines()[0]) == (1, "DIVERGED  first at t4_l2_attn")


def test_side_that_differs_from_itself_is_unstable(made: Path) -> None:
    result, tree = against(made, faulty("Once"), *SHORT)
    assert (result.status, tree.verdict) == (1, "unstable")
    assert result.stdout.startswith("UNSTABLE  dut not repeatable, first at t3_l3_x in run 2 of 2")


def test_dead_tap_is_not_run(made: Path) -> None:
    result, tree = against(made, faulty("DeadTap"), *SHORT)
    assert (result.status, tree.verdict) == (3, "not_run")
    assert "NOT RUN  the control did not fire: a fault planted at t" in result.stdout


def test_without_injection_the_control_is_at_dump_level(made: Path) -> None:
    result, tree = against(made, faulty("NoInject"), *SHORT)
    assert (result.status, tree.control and tree.control.kind) == (0, "dump level")


def test_other_tokens_are_refused(made: Path) -> None:
    result = run_cli("digest", str(made / "ref.digest"), "--against", "cpu", "--tokens", "1,2,4")
    assert result.status == 2
    assert "was made with other tokens (6) than this run (3 of prompt, 4 decoded)" in result.stderr


def test_other_hash_is_refused(made: Path) -> None:
    words = ("--against", "cpu", *SHORT, "--hash", "kestrel-fnv")
    result = run_cli("digest", str(made / "ref.digest"), *words)
    assert result.status == 2
    assert "hashes differ" in result.stderr


def test_other_model_is_said(made: Path) -> None:
    result, tree = against(made, "cpu", *SHORT, "--seed", "8")
    assert (result.status, tree.first) == (1, "t3_l0_nrm")
    assert "model differ: ref moe-tiny seed 7 dut moe-tiny seed 8" in tree.notes


# --- what is refused ------------------------------------------------------------------------------


def test_output_goes_to_stdout_or_a_new_file(made: Path) -> None:
    dump, path = str(made / "ref.dump"), made / "ref.digest"
    result = run_cli("digest", dump)
    assert (result.status, result.stdout) == (0, path.read_text())
    assert said(run_cli("digest", dump, "-o", str(path))) == (
        *(2, ""),
        f"parity: {path}: exists already\n  next: give another name, or --force\n",
    )
    assert run_cli("digest", dump, "-o", str(path), "--force").status == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("cpu", "--against", "emu"), "both sides run here\n  next: parity diff --bisect"),
        (("exec:./x",), "exec:./x: cannot be started: No such file or directory\n  next: check"),
        (("nothing.dump",), "nothing.dump: No such file or directory"),
        (("cpu", "--json", "x.json"), "--json: nothing is compared\n  next: give --against"),
        (("cpu", "-q"), "--quiet: nothing is compared"),
        (("cpu", "-o", ""), "-o: the name is empty"),
        (("cpu", "-o", "no/such/x.digest"), "no/such/x.digest: cannot be written"),
        (("cpu", "-o", "{ref}"), "already taken by the input"),
    ],
)
def test_refusals(made: Path, words: tuple[str, ...], text: str) -> None:
    if "{ref}" in words:
        dump = str(made / "ref.dump")
        words = (dump, "--against", dump, "-o", dump, "--force")
    result = run_cli("digest", *words)
    assert (result.status, result.stdout) == (2, "")
    assert text in result.stderr


def test_damaged_file_is_refused_by_its_field(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.digest"
    text = (made / "ref.digest").read_text()
    at = text.index('"links"') + 40
    path.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
    result = run_cli("digest", str(path), "--against", "cpu", *SHORT)
    assert said(result) == (
        *(2, ""),
        f"parity: {path}: damaged: field links does not have its check\n"
        "  next: write it again: parity digest DUMP -o FILE\n",
    )
    path.write_text(text[: len(text) // 2])
    cut = run_cli("digest", str(made / "ref.digest"), "--against", str(path))
    assert cut.status == 2
    assert re.search(r"damaged: not JSON at line \d+ column \d+", cut.stderr)


def test_no_keys_are_not_run(made: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.dump"
    empty.write_text("# format parity-dump 1\n")
    result, tree = against(made, str(empty), tmp=tmp_path)
    assert (result.status, tree.verdict) == (3, "not_run")
    assert "nothing compared: no keys in dut" in result.stdout


def test_an_engine_that_cannot_run_leaves_a_record(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity_cpu.engine.free_bytes", lambda: 1000)
    result, tree = against(made, "cpu", *SHORT, tmp=tmp_path)
    assert (result.status, result.stdout, tree.verdict) == (3, "", "not_run")
    assert "1.4 MB of host memory" in tree.reason
