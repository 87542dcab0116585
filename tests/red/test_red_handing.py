"""Arrays of a step that are handed over wrongly: found at the exact key, with exit status 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.dumps.reader import read_dump
from parity.model.generator import prompt_tokens
from parity.promises.candidate import candidate
from parity.promises.conformance import Bench, ConformanceError
from parity.testing import logits_are_a_copy, run_check
from tests.cli_runner import run_cli
from tests.engines.test_conformance import SMALL
from tests.red import handing_faults
from tests.red.test_red_engines import diff
from tests.red.test_red_probes import run

FAULTS = "tests.red.handing_faults"


def test_digests_that_are_shifted_by_one(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, f"{FAULTS}:ShiftedDigests", "--n", "2")
    assert (status, tree.first) == (1, "t33_l1_ores")
    assert (tree.counts.same, tree.counts.differ) == (46 + 20, 26)


@pytest.mark.parametrize("model", ["moe-tiny", "hybrid-tiny"])
def test_a_row_with_the_digests_of_another(tmp_path: Path, model: str) -> None:
    words = ("--pos", "5", "--m", "2,3", "--model", model)
    ran = run(tmp_path, "isodiff", "OtherRow", *words, module=FAULTS)
    assert (ran.status, ran.found["verdict"], ran.found["first"]) == (1, "diverged", "t7_l0_nrm")


def test_one_array_for_all_steps() -> None:
    """A run takes each step in at once and sees nothing; who keeps steps does: the promise."""
    tokens = tuple(prompt_tokens(7, 6, SMALL.config.vocab))
    given = candidate(handing_faults.OneArray, None)
    bench = Bench("logits_are_a_copy", given, SMALL, tokens)
    said = "a later step wrote into the entries of one before: t0_l0_nrm was "
    with pytest.raises(ConformanceError, match=said):
        run_check(logits_are_a_copy, bench)


def test_one_array_for_all_steps_ends_1(tmp_path: Path) -> None:
    """The probes keep single steps, and hold rows against them."""
    words = ("--pos", "5", "--m", "2", "--model", "moe-tiny")
    ran = run(tmp_path, "isodiff", "OneArray", *words, module=FAULTS)
    assert (ran.status, ran.found["verdict"], ran.found["first"]) == (1, "diverged", "t5_l0_nrm")


def test_a_key_that_is_said_not_to_be_finite(tmp_path: Path) -> None:
    """The run ends there, at exactly that key, and is not green."""
    path = tmp_path / "odd.dump"
    words = ("--engine", f"{FAULTS}:NotFiniteElsewhere", "--n", "4", "-o", str(path))
    assert run_cli("dump", *words).status == 0
    dump = read_dump(path)
    assert (dump.header["stopped"], dump.size) == ("t33_l2_kraw", 2 * 46)
    assert [str(entry.key) for entry in dump.entries if entry.nonfinite] == ["t33_l2_kraw"]
    status, tree = diff(tmp_path, f"{FAULTS}:NotFiniteElsewhere", "--n", "4")
    said = "not finite with the same bytes: t33_l2_kraw (dut 1 from index 5)"
    assert (status, tree.first, tree.reason) == (3, None, said)
