"""Another embedding is never told as an op on equal inputs: not on the console, in no file.

The planted engines differ in what can be looked at; each demands the exact sentence, in every
report that is written of the run.
"""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from parity.tree import Tree
from tests.cli.running import SHORT
from tests.cli_runner import run_cli

NORM = "RMSNorm (contract 1.1)"
EITHER = f"embedding or {NORM}"
ROW = "is embedded as another row: 31 of 160 elements differ"  # one of 32 weights is 0
UNSEEN = "not seen on both sides: the embedding of token {}, which is not dumped"
CASES = {
    "OtherEmbedding": ("embedding", "token {} " + ROW, "embed.d"),
    "OtherEmbeddingAlone": ("embedding", "token {} " + ROW, "embed.d"),
    "OtherEmbeddingUntold": (EITHER, UNSEEN, "embed.d"),
    "OtherNormUntold": (EITHER, UNSEEN, "layers.0.attn_norm"),
}


@pytest.mark.parametrize("name", CASES)
def test_red_another_embedding_is_told_as_such_in_every_report(tmp_path: Path, name: str) -> None:
    op, evidence, weights = CASES[name]
    files = [
        word
        for kind in ("json", "html", "junit", "markdown")
        for word in (f"--{kind}", str(tmp_path / kind))
    ]
    run = ("diff", *SHORT, "--prefill", "ref", "--dut", f"tests.red.start_faults:{name}")
    result = run_cli(*run, *files)
    assert result.status == 1, result.stderr
    tree = Tree.from_json((tmp_path / "json").read_text())
    assert tree.first == "t3_l0_nrm"
    assert tree.births is not None
    birth = tree.births.found[0]
    told = evidence.format(tree.run["fed"].split(",")[0])
    assert (birth.key, birth.op, birth.evidence, birth.clean) == ("t3_l0_nrm", op, told, False)
    assert birth.weights == [weights]
    sentence = f"; {told}; its weights differ: {weights}"
    console = " ".join(result.stdout.split())
    markdown = (tmp_path / "markdown").read_text().replace("`", "").replace("\\", "")
    junit, page = (unescape((tmp_path / kind).read_text()) for kind in ("junit", "html"))
    for text in (console, " ".join(junit.split()), markdown, page):
        assert op in text
        assert sentence in text
        assert f"{NORM}; inputs equal" not in text
        assert f"{NORM}, only birth; inputs equal" not in text
    assert f"<td>{told}</td>" in page  # the column "Inputs in the run"
    again = run_cli("report", str(tmp_path / "json"))
    assert " ".join(again.stdout.split()) == console


def test_dumps_alone_name_both(tmp_path: Path) -> None:
    """Nothing is run again: the first norm and what it reads are both named."""
    paths = {}
    for side, engine in (("ref", "cpu"), ("dut", "tests.red.start_faults:OtherEmbedding")):
        paths[side] = str(tmp_path / f"{side}.dump")
        result = run_cli("dump", "--engine", engine, *SHORT, "-o", paths[side])
        assert result.status == 0, result.stderr
    found = run_cli("diff", "--ref", paths["ref"], "--dut", paths["dut"], "--json", "-")
    assert found.status == 1
    assert json.loads(found.stdout)["first"] == "t3_l0_nrm"
    text = " ".join(run_cli("diff", "--ref", paths["ref"], "--dut", paths["dut"]).stdout.split())
    assert f"op {NORM}, or the embedding it reads, which is not dumped" in text


def test_a_right_embedding_keeps_the_norm_as_birthplace(tmp_path: Path) -> None:
    """The other way round: rows that both sides tell alike leave the op, on equal inputs."""
    keys = "t3_l0_nrm"
    run = ("diff", *SHORT, "--prefill", "ref", "--dut", f"tests.red.planted:Planted@keys={keys}")
    text = " ".join(run_cli(*run).stdout.split())
    assert f"cause {NORM}, only birth; inputs equal" in text
    assert "embedding" not in text
