"""``isodiff --batch``: every fault of batch_faults at its sequence, smallest B and first key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parity.runs.probe import Found
from parity.status import Verdict
from parity_probes import blocks
from parity_probes.batch_cases import Cases
from parity_probes.batches import Batches
from tests.cli_runner import run_cli
from tests.probes.asking import ask_for, model_of, run_probe
from tests.red import batch_faults

FAULTS = "tests.red.batch_faults"
SHORT, LONG = "5 tokens, no padding", "5 tokens, 82 of padding before them"


@dataclass(frozen=True)
class Ran:
    """What one command gave: the exit status, stdout, and the JSON it wrote."""

    status: int
    stdout: str
    found: dict[str, Any]

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.found["facts"])


def run(tmp_path: Path, engine: str, *words: str) -> Ran:
    path = tmp_path / "found.json"
    if not words:
        words = ("--m", "2..4")
    given = ("--engine", f"{FAULTS}:{engine}", "--model", "dense-tiny", "--pos", "3")
    result = run_cli("isodiff", "--batch", *given, "--json", str(path), *words)
    assert path.exists(), result.stderr
    return Ran(result.status, result.stdout, json.loads(path.read_text()))


RED = [
    # fault, B, neighbours, sequence, its length, first key
    ("no mask", 2, "ragged", 0, LONG, "t0_l0_attn"),
    ("positions", 2, "ragged", 0, LONG, "t0_l0_nrm"),
    ("swapped", 2, "other prompts", 0, SHORT, "t0_l0_nrm"),
    ("leak", 2, "copies", 0, SHORT, "t0_l0_attn"),
    ("by size", 3, "copies", 0, SHORT, "t0_logits"),
    ("late", 2, "ragged", 1, "87 tokens, no padding", "t9_l0_k"),
    ("lost", 2, "copies", 1, SHORT, "t0_l0_nrm"),
]


@pytest.mark.parametrize(("fault", "b", "beside", "at", "told", "key"), RED)
def test_a_faulty_batch_is_found_at_its_sequence_and_key(
    tmp_path: Path, fault: str, b: int, beside: str, at: int, told: str, key: str
) -> None:
    ran = run(tmp_path, f"Together@fault={fault}")
    assert (ran.status, ran.found["verdict"], ran.found["first"]) == (1, "diverged", key)
    head = f"B = {b}, {beside}, sequence {at} ({told}); first key {key}"
    assert ran.found["headline"].startswith(head)
    assert ran.found["smallest"] == b
    assert ran.stdout.splitlines()[-2].endswith(f"--m {b} --pos 3:3 --seed 7")
    telling = [one for one in ran.found["batches"] if one["telling"]]
    assert [(one["b"], one["neighbours"], one["place"]) for one in telling] == [(b, beside, 0)]
    assert ran.facts["control"] == "not needed: the run is red by itself"


def test_a_row_that_belongs_to_another_sequence_is_told(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=swapped")
    assert ran.found["headline"].endswith("; it has the bits of sequence 1")


def test_a_leak_is_told_from_an_order_that_depends_on_the_size(tmp_path: Path) -> None:
    leak, size = (run(tmp_path, f"Together@fault={fault}") for fault in ("leak", "by size"))
    said = "B = 2, other prompts: t0_l0_attn changes with the neighbours' tokens"
    assert leak.facts["contents"] == said
    assert size.facts["contents"] == "the tokens of the neighbours change nothing"
    assert size.facts["beside"] == (
        "copies differ from B = 3; other prompts differ from B = 3; ragged differ from B = 3"
    )


def test_padding_is_told_from_the_size_of_the_batch(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=no mask")
    assert ran.facts["beside"] == "copies equal; other prompts equal; ragged differ from B = 2"
    assert ran.facts["padding"] == (
        "needed: sequences of one length are equal; in ragged batches 6 of 6 with padding differ, "
        "first at t0_l0_attn; 0 of 12 without padding differ"
    )
    ran = run(tmp_path, "Together@fault=late")
    assert "0 of 6 with padding differ; 12 of 12 without padding differ" in ran.facts["padding"]
    ran = run(tmp_path, "Together@fault=by size")
    told = "not needed: sequences of one length differ from B = 3; in ragged batches "
    assert ran.facts["padding"].startswith(told)


def test_the_same_sequence_at_another_index_is_compared(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=swapped")
    assert ran.facts["place"].startswith("the sequence has other bits at the last index than at 0")
    ran = run(tmp_path, "Together@fault=by size")
    assert ran.facts["place"] == "the sequence has the same bits at index 0 and at the last"


def test_smaller_batches_than_asked_for_are_tried(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=by size", "--m", "6")
    tried = [(one["b"], one["asked"]) for one in ran.found["batches"] if not one["asked"]]
    assert tried == [(2, False), (3, False)]
    assert ran.found["headline"].startswith("B = 3, copies, sequence 0")


def test_how_far_it_moved_and_the_greedy_choice_are_told(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=by size")
    assert ran.facts["size"].startswith("t0_logits: ")
    assert ran.facts["greedy"].startswith("safe in ")
    ran = run(tmp_path, "Together@fault=no mask")
    assert ran.facts["greedy"].startswith("flipped in ")


def test_returned_logits_are_compared_beside_the_keys(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=logits")
    assert (ran.status, ran.found["first"]) == (1, None)
    assert ran.found["headline"] == (
        f"B = 2, copies, sequence 1 ({SHORT}); the keys are equal, the logits returned are not"
    )


def test_a_tap_that_changes_the_logits_is_red(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=untapped")
    said = "B = 2: the logits of a batch without a tap differ from those with one"
    assert (ran.status, ran.found["headline"]) == (1, said)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("flaky", "B = 2, copies: sequence 0 differs between two runs of the batch"),
        ("once", "B = 2, copies: what differed did not come back in a second run"),
        ("alone", "a sequence of 5 tokens alone differs between two runs"),
    ],
)
def test_what_differs_from_itself_is_unstable(tmp_path: Path, fault: str, said: str) -> None:
    ran = run(tmp_path, f"Together@fault={fault}")
    assert (ran.status, ran.found["verdict"], ran.found["brief"]) == (1, "unstable", said)
    assert "control" not in ran.facts


# --- green, and what is no proof ------------------------------------------------------------------


def test_a_batch_that_is_right_is_the_same(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together")
    assert (ran.status, ran.found["verdict"]) == (0, "same")
    assert ran.found["headline"] == "B = 2..4: 45 of 45 sequences, 2,610 of 2,610 keys"
    assert ran.facts["path"] == "7 calls for a batch of 4 copies, 28 for 4 alone"
    assert [control["fired"] for control in ran.found["controls"]] == [True, True]
    assert [one["contents"] for one in ran.found["batches"][:5]] == [None, "", None, "", None]
    mates = [mate for one in ran.found["batches"] for mate in one["mates"]]
    assert sum(mate["compared"] for mate in mates) == ran.found["compared"] == 2610
    assert {(mate["length"], mate["padding"]) for mate in mates} == {(5, 0), (5, 82), (87, 0)}


def test_a_loop_with_counters_batches_nothing(tmp_path: Path) -> None:
    ran = run(tmp_path, "Loops")
    said = "B = 2..4: as many calls as sequences alone: nothing was batched"
    assert (ran.status, ran.found["headline"]) == (3, said)


def test_a_loop_without_counters_is_the_same_and_says_what_is_not_shown(tmp_path: Path) -> None:
    ran = run(tmp_path, "Uncounted")
    assert (ran.status, ran.found["verdict"]) == (0, "same")
    said = "the engine has no counters: that a batch ran as one is not shown"
    assert ran.facts["path"] == said
    assert ran.found["costs"] == []


def test_without_injection_the_control_is_at_dump_level(tmp_path: Path) -> None:
    ran = run(tmp_path, "Untold")
    assert ran.status == 0
    assert ran.facts["control"].startswith("fired: dump level: one digit of t")


def test_a_batch_of_one_is_not_run(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together", "--m", "1")
    assert (ran.status, ran.found["headline"]) == (3, "B = 1: a batch of one: nothing was batched")


def test_a_control_that_does_not_fire_is_not_run(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=dead tap")
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert ran.found["headline"].startswith("the control did not fire: ")
    assert [control["fired"] for control in ran.found["controls"]] == [False, False]


def test_red_a_probe_whose_control_is_broken_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault stands in the probe: its control compares the ref with itself."""
    ask = ask_for("dense-tiny", (2,), (3,))
    assert run_probe(Batches, batch_faults.Together, ask).verdict is Verdict.SAME
    true = blocks.compare_steps
    monkeypatch.setattr(blocks, "compare_steps", lambda ref, dut: true(ref, ref))
    found = run_probe(Batches, batch_faults.Together, ask)
    assert found.verdict is Verdict.NOT_RUN
    assert found.brief.startswith("the control did not fire: 1 ULP at t")
    assert found.brief.endswith("found at nothing, in copies")


def test_not_finite_on_both_sides_is_not_run(tmp_path: Path) -> None:
    ran = run(tmp_path, "Together@fault=nan")
    assert (ran.status, ran.found["verdict"]) == (3, "not_run")
    assert ran.facts["beside"] == "copies not comparable; other prompts not comparable; " + (
        "ragged not comparable"
    )
    assert "contents" not in ran.facts


@pytest.mark.parametrize("engine", [f"{FAULTS}:NoBatch", "cpu"])
def test_an_engine_without_the_capability_is_not_run_and_named(engine: str) -> None:
    ran = run_cli("isodiff", "--batch", "--engine", engine, "--model", "dense-tiny", "-q")
    said = f"not run: {engine} lacks the capability 'batch', needed for batch\n"
    assert (ran.status, ran.stdout) == (3, said)


def test_a_model_that_has_no_batches_is_not_run_and_says_why() -> None:
    engine = f"{FAULTS}:NotWithThis"
    ran = run_cli("isodiff", "--batch", "--engine", engine, "--model", "dense-tiny", "--pos", "3")
    said = f"{engine} lacks the capability 'batch' with this model, needed for batch: it takes no "
    assert ran.status == 3
    assert f"{said}mask" in ran.stderr


@pytest.mark.parametrize("other", ["--rb", "--rb-only", "--chunks=2"])
def test_batch_is_a_check_of_its_own(other: str) -> None:
    ran = run_cli("isodiff", "--batch", other)
    assert ran.status == 2
    assert "is a check of its own: give it without --" in ran.stderr


# --- other settings -------------------------------------------------------------------------------


def test_a_red_engine_runs_again_with_its_settings_and_stays_red(tmp_path: Path) -> None:
    ran = run(tmp_path, "Healed@fault=by size")
    assert (ran.status, ran.found["verdict"], ran.found["smallest"]) == (1, "diverged", 3)
    again = ran.found["again"]
    assert (again["settings"], again["verdict"]) == ("invariant=on", "same")
    assert (again["smallest"], again["first"]) == (None, None)
    told = "with invariant=on (the toy's own): no B differs, B = 2..4: 45 of 45 sequences"
    assert ran.facts["settings"].startswith(told)


def test_settings_that_change_nothing_are_told_so(tmp_path: Path) -> None:
    ran = run(tmp_path, "NotHealed@fault=by size")
    assert ran.status == 1
    again = ran.found["again"]
    assert (again["verdict"], again["smallest"], again["first"]) == ("diverged", 3, "t0_logits")
    told = "with invariant=on (the toy's own): it differs too, B = 3, copies, sequence 0"
    assert ran.facts["settings"].startswith(told)


def test_no_other_run_where_none_is_needed(tmp_path: Path) -> None:
    assert run(tmp_path, "Healed").found["again"] is None
    on = run(tmp_path, "NotHealed@fault=by size@invariant=on")
    assert (on.status, on.found["again"]) == (1, None)
    assert run(tmp_path, "Together@fault=by size").found["again"] is None
    assert run(tmp_path, "Healed@fault=flaky").found["again"] is None


# --- which sequences ------------------------------------------------------------------------------


def test_neighbours_are_what_they_are_called() -> None:
    cases = Cases(model_of("dense-tiny"), ask_for("dense-tiny", (3,), (4,)))
    copies, *others = cases.of(3)
    assert len(set(copies.sequences)) == 1
    assert [(one.neighbours, one.place) for one in others] == [
        *(("other prompts", 0), ("other prompts", 2), ("ragged", 0), ("ragged", 2)),
    ]
    for one in others:
        assert one.sequences[one.place] == cases.sequence
        assert len(set(one.sequences)) == 3
        changed = cases.changed(one)
        assert list(map(len, changed.sequences)) == list(map(len, one.sequences))
        same = [a == b for a, b in zip(one.sequences, changed.sequences, strict=True)]
        assert same == [at == one.place for at in range(3)]
    assert [len(one) for one in others[2].sequences] == [6, 105, 105]
    assert [others[2].padding(at) for at in range(3)] == [99, 0, 0]


def test_a_result_comes_back_whole() -> None:
    ask = ask_for("dense-tiny", (2, 3), (3,))
    found = run_probe(Batches, batch_faults.Together, ask, options={"fault": "by size"})
    again = Found.of_record(json.loads(found.to_json()), "x.json")
    assert again == found
    assert again.batches
    assert again.moved is not None
