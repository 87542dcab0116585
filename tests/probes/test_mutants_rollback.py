"""What the probes say of a small engine and of each fault in it, to the letter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity.model.generator import prompt_tokens
from parity.runs.probe import Ask
from parity.status import Verdict
from parity_probes.chunks import PROMPT, Chunks
from parity_probes.rollback import Rollback, _found, _spoiled, _Tally
from tests.probes.probe_words import ATTENTION, EVERY, NORM, said
from tests.probes.small_engine import opened, run_small, small_model, small_side

# --- chunks ---------------------------------------------------------------------------------------


def chunk_facts(**more: str) -> list[tuple[str, str]]:
    facts = {
        "prompt": "65 tokens, 1 seeds, 2 further steps",
        "path": "fed by prefill and by rows",
        "calls": "for the prompt at the last size: prefill 2, rows 69",
        **more,
    }
    return list(facts.items())


@pytest.mark.parametrize(("kind", "keys"), [("moe-tiny", 24), ("hybrid-tiny", 25)])
def test_chunks_green(kind: str, keys: int) -> None:
    found = run_small(Chunks, kind=kind, chunks=(7, 64))
    total = 2 * 2 * (PROMPT + 2) * keys
    headline = f"chunks of 7, 64: {total:,} of {total:,} keys, state equal"
    assert said(found) == (Verdict.SAME, headline, None, "", total)
    assert (found.brief, found.name) == (headline, "chunks")
    control = {"moe-tiny": "1 step at t2_l1_k", "hybrid-tiny": "1 ULP at t33_l1_v"}[kind]
    control = f"fired: {control} element 0, found at that key"
    assert found.facts == chunk_facts(control=control)


def test_chunks_of_several_seeds_and_refused_sizes() -> None:
    found = run_small(Chunks, chunks=(65, 7), seeds=(7, 8), more=1)
    total = 3 * 2 * 66 * 24
    assert (found.verdict, found.compared) == (Verdict.SAME, total)
    refused = "65 by rows: 65 rows in one forward: 1 to 64 are possible"
    assert [text for label, text in found.facts if label == "refused"] == [refused] * 2
    assert dict(found.facts)["prompt"] == "65 tokens, 2 seeds, 1 further steps"
    control = "fired: 1 step at t2_l1_k element 0, found at that key"
    assert dict(found.facts)["control"] == control  # of the first seed
    assert dict(found.facts)["calls"] == "for the prompt at the last size: prefill 10, rows 85"


@pytest.mark.parametrize(
    ("faults", "headline", "first", "cause"),
    [
        (
            ("attn",),
            "chunks of 7, fed by rows: first key t1_l0_attn",
            "t1_l0_attn",
            f"{ATTENTION}, row 1 of 65; {EVERY}",
        ),
        (
            ("attn", "prefill"),
            "chunks of 7, fed by prefill: first key t1_l0_attn",
            "t1_l0_attn",
            f"{ATTENTION}, row 1 of 65; {EVERY}",
        ),
        (
            ("short",),
            "chunks of 7, fed by rows: first key t6_l0_nrm",
            "t6_l0_nrm",
            f"{NORM}, row 6 of 65; {EVERY}",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_chunks_red(faults: tuple[str, ...], headline: str, first: str, cause: str) -> None:
    found = run_small(Chunks, *faults, chunks=(64, 7))
    total = 2 * 2 * 67 * 24
    assert said(found) == (
        *(Verdict.DIVERGED, headline, first),
        *("--chunks 7 --seed 7", total),
    )
    calls = "for the prompt at the last size: prefill 10, rows 85"
    assert found.facts == [("cause", cause), *chunk_facts(calls=calls)]
    assert found.brief == headline


def test_chunks_that_leave_another_state_or_another_step() -> None:
    """The last chunk alone is wrong: its rows are stored, then read by nothing or by one step."""
    found = run_small(Chunks, "stores k", chunks=(65,), lacks=("rows",))
    assert found.verdict is Verdict.SAME
    found = run_small(Chunks, "stores k", "prefill", chunks=(63,), more=0)
    assert found.headline.startswith("chunks of 63, fed by prefill: first key t2_l0_nrm")
    last = run_small(Chunks, "last k", chunks=(65,), more=0)
    assert last.headline == (
        "chunks of 65, fed by prefill: state differs, first at l0_k row 64 (position 64)"
    )
    assert (last.verdict, last.first, last.failing, "cause" in dict(last.facts)) == (
        *(Verdict.DIVERGED, None, "--chunks 65 --seed 7", False),
    )
    further = run_small(Chunks, "hidden prefill", chunks=(65,), more=1)
    assert further.headline == (
        "chunks of 65, fed by prefill: a further step differs, first key t65_l0_nrm"
    )
    assert dict(further.facts)["cause"] == f"{NORM}, position 65, after the block; {EVERY}"


def test_chunks_seed_of_the_failure_and_what_could_not_be_compared() -> None:
    found = run_small(Chunks, "attn", chunks=(2,), seeds=(9, 8))
    assert found.failing == "--chunks 2 --seed 9"
    nan = run_small(Chunks, "nan everywhere", chunks=(7, 2))
    assert (nan.verdict, nan.first, nan.failing) == (Verdict.NOT_RUN, None, "--chunks 2 --seed 7")
    assert nan.headline == (
        "chunks of 2, fed by prefill: not finite with the same bytes: "
        "t0_l0_attn (ref 1 from index 1, dut 1 from index 1)"
    )


def test_chunks_a_difference_comes_before_what_could_not_be_compared() -> None:
    found = run_small(Chunks, "attn", "from 3", "nan at 5", chunks=(2, 7))
    assert (found.verdict, found.first, found.failing) == (
        *(Verdict.DIVERGED, "t1_l0_attn"),
        "--chunks 7 --seed 7",
    )


def test_chunks_control_and_what_the_engine_lacks() -> None:
    found = run_small(Chunks, "dead tap", chunks=(7,))
    text = "did not fire: 1 step at t2_l1_k element 0, found at nothing"
    assert (found.verdict, found.headline) == (Verdict.NOT_RUN, f"the control {text}")
    assert (found.brief, found.facts[-1]) == (found.headline, ("control", text))
    bare = run_small(Chunks, chunks=(7,), lacks=("rows", "counters", "inject"))
    assert bare.facts == [
        ("prompt", "65 tokens, 1 seeds, 2 further steps"),
        ("path", "fed by prefill"),
        ("control", "fired: dump level: one digit of t2_l1_k, found at that key"),
    ]


REFUSED = "{0} tokens in one prefill: 1 to 10 are possible"


def test_chunks_that_one_way_refuses_are_fed_by_the_next() -> None:
    found = run_small(Chunks, "short prefill", chunks=(64, 7))
    total = 3 * 67 * 24
    assert said(found)[:2] == (
        Verdict.SAME,
        f"chunks of 64, 7: {total:,} of {total:,} keys, state equal",
    )
    assert ("refused", f"64 by prefill: {REFUSED.format(64)}") in found.facts
    assert dict(found.facts)["calls"] == "for the prompt at the last size: rows 85, prefill 10"


@pytest.mark.parametrize(
    ("sizes", "idle", "keys"), [((65,), "65", 0), ((66, 7, 65), "66, 65", 2 * 67 * 24)]
)
def test_chunks_that_every_way_refuses_are_not_called_the_same(
    sizes: tuple[int, ...], idle: str, keys: int
) -> None:
    found = run_small(Chunks, "short prefill", chunks=sizes)
    headline = f"chunks of {idle}: not run, refused in every way"
    assert said(found) == (Verdict.NOT_RUN, headline, None, "", keys)
    assert found.brief == headline
    refused = [text for label, text in found.facts if label == "refused"]
    assert len(refused) == 2 * len(sizes) - 2 * (7 in sizes)
    assert "control" not in dict(found.facts)
    red = run_small(Chunks, "short prefill", "attn", chunks=sizes)
    assert red.verdict is (Verdict.DIVERGED if 7 in sizes else Verdict.NOT_RUN)


def test_chunks_room_progress_and_states() -> None:
    _, side = opened(Chunks, chunks=(64, 7), more=3)
    engine: Any = side.engine
    assert engine.room == PROMPT + 3
    keys, total = 68 * 24, 4 * 68 * 24
    told = [one for one in engine.told if one[0].startswith("chunks")]
    assert told == [
        (f"chunks of {size}, {way}", number * keys, total)
        for number, (size, way) in enumerate(
            ((64, "prefill"), (64, "rows"), (7, "prefill"), (7, "rows"))
        )
    ]
    assert engine.written == [68, 0] * 5  # four runs and the control
    fed = [len(draft) for draft in engine.drafts]  # the control as the last run: rows of 7
    assert fed == [64, *[*[7] * 9, 2] * 2]
    assert engine.drafts[0] == prompt_tokens(7, PROMPT, 32)[:64]
    _, twice = opened(Chunks, chunks=(64,), seeds=(7, 8))
    assert {one[2] for one in twice.engine.told if one[0].startswith("chunks")} == {4 * 67 * 24}


# --- rollback -------------------------------------------------------------------------------------


MARKED = "accept 0..M of M, three drafts in a row, unused rows, 6 rules"


def test_rollback_green() -> None:
    found = run_small(Rollback)
    headline = "M = 2, 3: 16 of 16 checks, 768 keys"
    assert said(found) == (Verdict.SAME, headline, None, "", 768)
    assert found.brief == "M 2, 3, 16 of 16 checks, controls 1 of 1 red, control fired"
    assert found.facts == [
        ("checks", MARKED),
        ("controls", "1 of 1 red: length kept"),
        (
            "control",
            "fired: 1 step at t3_l1_k element 0, found at that key; "
            "1 step in l0_v row 0 element 1, found there",
        ),
    ]
    assert found.table == [
        "M  logits  keys   KV rows  scales  lengths  2 further steps",
        "2  equal   equal  equal    equal   equal    equal",
        "3  equal   equal  equal    equal   equal    equal",
    ]


@pytest.mark.parametrize("start", [0, 3])
def test_rollback_of_a_recurrent_state(start: int) -> None:
    found = run_small(Rollback, kind="hybrid-tiny", starts=(start,), lacks=("inject",))
    assert (found.verdict, found.compared) == (Verdict.SAME, 800)
    part = {0: "l0_hist row 0 element 1", 3: "l1_k row 0 element 1"}[start]
    assert found.facts[1:] == [
        ("controls", "4 of 4 red: no hist, no S, length kept, one layer too few"),
        (
            "control",
            f"fired: dump level: one digit of t{start}_l1_v, found at that key; "
            f"1 ULP in {part}, found there",
        ),
    ]
    assert found.table[0] == "M  logits  keys   KV rows  S      lengths  hist   2 further steps"


def test_rollback_at_position_zero_without_a_recurrent_state() -> None:
    found = run_small(Rollback, starts=(0,), more=5)
    assert found.facts[-1][1].endswith("; 1 step in l0_v row 0 element 1, found there")


def test_rollback_moves_an_element_of_the_state_after_the_draft() -> None:
    """At position 0 no row stands before the draft, so its tokens are taken first."""
    _, side = opened(Rollback, starts=(0,), sizes=(3, 2))
    assert side.engine.written[-1] == 3
    found, side = opened(Rollback, starts=(1,))
    assert (found.verdict, side.engine.written[-1]) == (Verdict.SAME, 1)
    assert found.facts[-1][1].endswith("; 1 step in l0_v row 0 element 1, found there")


def test_rollback_of_several_seeds_and_sizes() -> None:
    found = run_small(Rollback, seeds=(7, 8), sizes=(3, 2), more=3)
    assert found.headline == "M = 3, 2: 32 of 32 checks, 1,728 keys"
    assert dict(found.facts)["checks"].endswith("unused rows, 12 rules")
    assert len(dict(found.facts)["control"].split("; ")) == 4
    assert [line.split()[0] for line in found.table] == ["M", "2", "3"]
    assert found.table[0].endswith("3 further steps")


SPOILED = "DIFF    DIFF  DIFF     DIFF  equal    DIFF  DIFF at step 1"


@pytest.mark.parametrize(
    ("kind", "faults", "what", "first", "differ"),
    [
        ("hybrid-tiny", ("keeps s",), "S of layer 0 was not restored", "t3_l0_nrm", 7),
        ("hybrid-tiny", ("keeps hist",), "hist of layer 0 was not restored", "t3_l0_nrm", 7),
        (
            *("hybrid-tiny", ("keeps s", "keeps hist")),
            *("hist of layer 0 (and 1 more) was not restored", "t3_l0_nrm", 7),
        ),
        (
            *("moe-tiny", ("hidden draft",)),
            *("a further step differs, first key t3_l0_nrm", "t3_l0_nrm", 7),
        ),
        (
            *("moe-tiny", ("keeps length",)),
            *("lengths (and 8 more) was not restored", None, 7),
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_rollback_red(
    kind: str, faults: tuple[str, ...], what: str, first: str | None, differ: int
) -> None:
    found = run_small(Rollback, *faults, kind=kind)
    headline = f"M = 2, accept 0: {what}".replace(": S of", ": s of")
    assert said(found)[:4] == (Verdict.DIVERGED, headline, first, "--m 2 --seed 7")
    assert found.brief == headline
    assert [label for label, _ in found.facts] == ["differ", "checks", "controls"]
    assert found.facts[:2] == [("differ", f"{differ} of 7 checks"), ("checks", "accept 0..M of M")]
    if kind == "hybrid-tiny":
        assert [line[3:] for line in found.table[1:]] == [SPOILED] * 2
    elif "keeps length" in faults:
        assert [line[3:] for line in found.table[1:]] == ["DIFF     DIFF    DIFF     not run"] * 2
        assert found.compared == 0


def test_rollback_names_the_step_and_the_columns_that_differ() -> None:
    """The steps after the draft are right, the second further one is not."""
    found = run_small(Rollback, "late draft", sizes=(1,), more=4)
    assert found.headline == "M = 1, accept 0: a further step differs, first key t5_l0_nrm"
    assert found.table == [
        "M  logits  keys  KV rows  scales  lengths  4 further steps",
        "1  DIFF    DIFF  equal    equal   equal    DIFF at step 2",
    ]
    unsaid = run_small(Rollback, "draft logits", sizes=(2,))
    assert unsaid.verdict is Verdict.SAME
    assert unsaid.table[1].startswith("2  DIFF    equal  equal")


@pytest.mark.parametrize(
    ("fault", "headline", "differ", "keys"),
    [
        ("goes unmarked", "rollback without a mark: was not refused", "4 of 16", 768),
        (
            *("moves unmarked", "rollback without a mark: state differs, first at lengths"),
            *("3 of 16", 768),
        ),
        ("mark stays", "a second rollback: was not refused", "1 of 16", 768),
        (
            *("first mark", "a second mark replaces the first: state differs, first at lengths"),
            *("1 of 16", 768),
        ),
        (
            *("no mark at 0", "a mark at position 0: was refused: nothing to mark"),
            *("1 of 15", 720),
        ),
        ("mark after reset", "rollback after a reset: was not refused", "1 of 16", 768),
    ],
)
def test_rollback_red_rule(fault: str, headline: str, differ: str, keys: int) -> None:
    found = run_small(Rollback, fault)
    assert said(found) == (Verdict.DIVERGED, headline, None, "", keys)
    assert (found.brief, found.facts[0]) == (headline, ("differ", f"{differ} checks"))
    assert found.facts[1] == ("checks", MARKED)
    assert "control" not in dict(found.facts)


def test_rollback_controls_that_prove_nothing() -> None:
    found = run_small(Rollback, "dead tap")
    told = "did not fire: 1 step at t3_l1_k element 0, found at nothing"
    assert (found.verdict, found.headline) == (Verdict.NOT_RUN, f"the control {told}")
    assert found.brief == found.headline
    assert dict(found.facts)["control"] == f"{told}; 1 step in l0_v row 0 element 1, found there"
    blind = run_small(Rollback, "ignores s", kind="hybrid-tiny")
    text = "control 'no S' was not red: a faulty rollback would not be seen"
    assert (blind.verdict, blind.headline, blind.brief) == (Verdict.NOT_RUN, text, text)
    assert dict(blind.facts)["controls"].startswith("3 of 4 red: no hist, no S, ")


def test_rollback_a_control_that_is_blind_for_one_seed_is_blind() -> None:
    def open_side(model: Any, positions: int) -> Any:
        return small_side(["ignores s"] if model.seed == 7 else [], (), model, positions)

    models = tuple(small_model("hybrid-tiny", seed) for seed in (7, 8))
    found = Rollback().run(open_side, Ask(models=models, sizes=(2,), starts=(3,), more=2))
    text = "control 'no S' was not red: a faulty rollback would not be seen"
    assert (found.verdict, found.headline) == (Verdict.NOT_RUN, text)


def test_rollback_without_a_control_is_not_run() -> None:
    found = _found("rollback", Ask(models=(), sizes=(2,), starts=(3,)), _Tally())
    text = "the control was not planted"
    assert (found.verdict, found.headline, found.brief) == (Verdict.NOT_RUN, text, text)


def test_rollback_shows_the_columns_of_every_check() -> None:
    """Where the length is not restored nothing is run, so the last check has fewer columns."""
    found = run_small(Rollback, "keeps length 2", sizes=(1,))
    assert found.headline == "M = 1, accept 1: lengths (and 8 more) was not restored"
    assert found.table == [
        "M  logits  keys   KV rows  scales  lengths  2 further steps",
        "1  equal   equal  DIFF     DIFF    DIFF     equal",
    ]


def test_rollback_seed_of_the_failure() -> None:
    found = run_small(Rollback, "hidden draft", sizes=(3, 2), seeds=(9, 8))
    assert found.failing == "--m 2 --seed 9"
    assert found.facts[0] == ("differ", "7 of 7 checks")


def test_rollback_room_progress_and_steps() -> None:
    _, side = opened(Rollback, sizes=(3, 2), starts=(4,), more=3)
    engine: Any = side.engine
    assert engine.room == 4 + 2 * 3 + 1
    told = [one for one in engine.told if one[0].startswith("M ")]
    keys = 24
    steps = {2: [3, 3, 5], 3: [3, 3, 4, 6]}
    done, wanted = 0, []
    for size, counts in steps.items():
        for accept, count in enumerate(counts):
            wanted.append((f"M {size} accept {accept}", done * keys, 27 * keys))
            done += count
    assert told == wanted
    assert {type(one[2]) for one in told} == {int}
    far = opened(Rollback, sizes=(2,), starts=(4,), more=9)[1]
    assert far.engine.room == 4 + 2 + 9


def test_rollback_progress_of_several_seeds() -> None:
    _, side = opened(Rollback, sizes=(2,), seeds=(7, 8), more=1)
    told = [one for one in side.engine.told if one[0].startswith("M ")]
    assert {one[2] for one in told} == {2 * (2 + 2 + 3) * 24}
    # Singles as far as the drafts and the steps after them go.
    assert sum(one[0].startswith("single") for one in side.engine.told) == 3 + 2 + 1


def test_rollback_drafts_hold_right_and_wrong_tokens() -> None:
    _, side = opened(Rollback, sizes=(2,), more=1)
    engine: Any = side.engine
    tokens = prompt_tokens(7, engine.room, 32)

    def draft(start: int, right: int) -> list[int]:
        wrong = [(token + 1) % 32 for token in tokens[start + right : start + 2]]
        return [*tokens[start : start + right], *wrong]

    accepted = [draft(3, 0), draft(3, 1), draft(3, 2)]
    chained = [draft(3, 2), draft(5, 1), draft(6, 0)]
    ruled = [draft(3, 0), draft(3, 0), draft(4, 0), draft(0, 0)]
    assert engine.drafts == [*accepted, *chained, *ruled, draft(3, 0), draft(3, 0)]
    assert (len(tokens), engine.room) == (3 + 2 * 2 + 1,) * 2


@pytest.mark.parametrize(
    ("fault", "headline", "first"),
    [
        ("bad rollback 4", "M = 1, three drafts in a row: first key t4_l0_nrm", "t4_l0_nrm"),
        ("bad rollback 8", "M = 1, from position 0: first key t0_l0_nrm", "t0_l0_nrm"),
        ("zeros past", "M = 1, unused rows zero: first key t3_l0_nrm", "t3_l0_nrm"),
    ],
)
def test_rollback_red_check_of_the_largest_size(fault: str, headline: str, first: str) -> None:
    found = run_small(Rollback, fault, sizes=(1,))
    assert said(found)[:4] == (Verdict.DIVERGED, headline, first, "--m 1 --seed 7")
    assert found.facts[:2] == [("differ", "1 of 11 checks"), ("checks", MARKED)]


def test_rollback_rules_after_a_draft_and_at_position_0() -> None:
    found = run_small(Rollback, "goes drafted")
    assert found.headline == "the same after a draft: was not refused"
    both = run_small(Rollback, "goes drafted", "bad rollback 8", sizes=(1,))
    assert (both.headline, both.facts[0][1]) == (
        *("M = 1, from position 0: first key t0_l0_nrm", "3 of 11 checks"),
    )
    kept = run_small(Rollback, "keeps s at 0", "ignores s", kind="hybrid-tiny")
    assert kept.headline == "a mark at position 0: state differs, first at l0_s row 0"
    assert kept.facts[0] == ("differ", "1 of 16 checks")


def test_states_that_faulty_rollbacks_would_leave() -> None:
    """Two recurrent layers; what the draft left is told by 9, what stood before it by 1."""
    names = ("lengths", "l0_s", "l0_hist", "l1_s", "l1_hist", "l2_k", "l2_v")
    start, tried = ({name: np.array([value]) for name in names} for value in (1, 9))
    left = {
        name: sorted(part for part in names if state[part][0] == 9)
        for name, state in _spoiled(start, tried)
    }
    assert left == {
        "no S": ["l0_s", "l1_s"],
        "no hist": ["l0_hist", "l1_hist"],
        "length kept": ["l2_k", "l2_v", "lengths"],
        "one layer too few": ["l1_hist", "l1_s"],
    }
    short = {name: array for name, array in start.items() if name != "l1_hist"}
    (*_, (name, fewer)) = _spoiled(short, tried)
    assert (name, [part for part in names if part in fewer and fewer[part][0] == 9]) == (
        *("one layer too few", ["l1_s"]),
    )
    plain = {name: start[name] for name in ("lengths", "l2_k")}
    assert [name for name, _ in _spoiled(plain, plain)] == ["length kept"]
