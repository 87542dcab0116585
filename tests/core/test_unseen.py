"""Births whose inputs nothing looked at: never "inputs equal", and all that may be wrong is named.

Each row of evidence that a flow is given turns the name of the birthplace: without one the other
would be told.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.explain.births import BY_REPLAY, Flow, name_births
from parity.explain.rerun import Visit
from parity.explain.unseen import Embedded, ask_rows, weights_of
from parity.keys import Key
from parity.tree import EMBEDDED, EMBEDDING, Cause, KeyState
from tests.core.test_births_flow import MOE, born, causes, visit
from tests.core.test_mutants_births import READERS, detail_of, found_of, start, tree_of

NRM, ORES = READERS
CHAIN = tuple(f"t3_l0_{field}" for field in ("kraw", "knorm", "k", "attn"))  # from nrm to ores
NORM = "RMSNorm (contract 1.1)"
SUM = "output projection and residual (contract 2)"
UNSEEN = "not seen on both sides: the embedding of token 1, which is not dumped"


def flow_of(seen: Visit, row: str | None, weights: tuple[str, ...] = ()) -> Flow:
    """The flow of one visit where both sides embed its token as ``row`` says."""

    def said(token: int) -> str | None:
        assert token == 1
        return row

    rows: Embedded = said
    flow = Flow(MOE, {}, (), weights, embedded=rows)
    flow.add(seen)
    return flow


def told(flow: Flow) -> list[tuple[str, str, bool, str]]:
    return [(one.key.tag, one.op, one.clean, one.evidence) for one in flow.born]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (None, [(NRM, f"embedding or {NORM}", False, UNSEEN)]),
        ("another row", [(NRM, EMBEDDED, False, "another row")]),
        ("", [(NRM, "", True, "")]),
    ],
    ids=["not told", "another row", "the same row"],
)
def test_first_norm_without_a_replay(row: str | None, wanted: list[Any]) -> None:
    """ores differs too, by its input: the norm is the only birth, however the embedding is."""
    differ = (NRM, *CHAIN, ORES)
    assert told(flow_of(visit(MOE, differ=differ, forced=None), row)) == wanted


@pytest.mark.parametrize(
    ("forced", "row", "wanted"),
    [
        (READERS, None, [(NRM, EMBEDDING, False, BY_REPLAY)]),
        (READERS, "", [(NRM, EMBEDDING, False, BY_REPLAY)]),
        (READERS, "other", [(NRM, EMBEDDED, False, "other")]),
        # ores gave the ref's bytes by replay, from the same embedding: the norm is wrong.
        ((NRM,), None, [(NRM, "", True, "")]),
        ((ORES,), None, [(ORES, "", True, "")]),
    ],
    ids=["all", "all, same row", "all, other row", "norm alone", "residual alone"],
)
def test_first_norm_by_replay(forced: tuple[str, ...], row: str | None, wanted: list[Any]) -> None:
    differ = (*((NRM, *CHAIN) if NRM in forced else ()), ORES)
    assert told(flow_of(visit(MOE, differ=differ, forced=forced), row)) == wanted


def test_two_readers_that_may_both_be_right() -> None:
    """Another layer's norm is born as well: ops that are wrong everywhere, or another embedding."""
    seen = visit(MOE, differ=(*READERS, "t3_l2_nrm"), forced=(*READERS, "t3_l2_nrm"))
    assert told(flow_of(seen, None)) == [
        (NRM, f"embedding or {NORM}", False, UNSEEN),
        (ORES, f"embedding or {SUM}", False, UNSEEN),
        ("t3_l2_nrm", "", True, ""),
    ]
    assert born(flow_of(seen, "")) == [*READERS, "t3_l2_nrm"]
    merged = flow_of(seen, "other")
    assert told(merged)[0] == (NRM, EMBEDDED, False, "other")
    assert born(merged) == [NRM, "t3_l2_nrm"]
    assert causes(merged)[ORES] == (Cause.INHERITED, NRM)


def test_op_that_another_embedding_hides_is_doubted() -> None:
    seen = visit(MOE, differ=READERS, forced=READERS)
    hidden = flow_of(seen, "other", ("embed.d", "layers.0.attn_norm"))
    text = "not tried on the ref's embedding, and its weights differ: layers.0.attn_norm"
    assert hidden.doubts == [f"{NRM}: {text}"]
    assert flow_of(seen, "other", ("embed.d", "layers.1.attn_norm")).doubts == []


def test_another_token_is_no_other_embedding() -> None:
    seen = replace(visit(MOE, differ=READERS, forced=READERS), tokens=(1, 2))
    assert EMBEDDED not in {op for _, op, _, _ in told(flow_of(seen, "other"))}


def test_values_that_the_ref_leaves_out_belong_to_the_op() -> None:
    """Experts in one kernel: what is born in x may be any of what went into it unseen."""
    seen = visit(MOE, differ=("t3_l1_x",), forced=("t3_l1_x",))
    gone = {Key.parse(f"t3_l1_{field}") for field in ("gate", "up", "act", "down")}
    ref = {key: entry for key, entry in seen.ref.items() if key not in gone}
    flow = flow_of(replace(seen, ref=ref), "")
    op = "gate projection (contract 2) to FFN and residual (contract 2)"
    evidence = "not seen on both sides: gate, up, act, down"
    assert told(flow) == [("t3_l1_x", op, False, evidence)]
    assert told(flow_of(seen, "")) == [("t3_l1_x", "", True, "")]


@pytest.mark.parametrize(
    ("tag", "op", "wanted"),
    [
        ("t3_l0_nrm", "", ["layers.0.attn_norm"]),
        ("t3_l0_nrm", EMBEDDED, ["embed.d"]),
        ("t3_l0_nrm", EMBEDDING, ["embed.d"]),
        ("t3_l0_nrm", f"embedding or {NORM}", ["embed.d", "layers.0.attn_norm"]),
        ("t3_l1_kraw", "", ["layers.1.k_proj.d", "layers.1.k_proj.qs"]),
        ("t3_l1_down", "", ["layers.1.experts.down"]),
        ("t3_l0_kraw", "", []),
        ("t3_l1_attn", "", []),
        ("t3_logits", "", ["embed.d"]),
    ],
)
def test_weights_that_an_op_reads(tag: str, op: str, wanted: list[str]) -> None:
    names = ["embed.d", "layers.0.attn_norm", "layers.1.k_proj.d", "layers.1.k_proj.qs"]
    names += ["layers.1.experts.down", "layers.11.k_proj"]
    assert weights_of(Key.parse(tag), names, op, tied=True) == wanted
    assert weights_of(Key.parse("t3_logits"), names, tied=False) == []


ROW = np.float32([0.0, 1.0, 2.0])


def telling(row: np.ndarray | None) -> Any:
    """A side whose engine embeds every token as ``row``; one that cannot tell for None."""
    tell = {} if row is None else {"embedded": lambda token: row}
    return SimpleNamespace(side=SimpleNamespace(engine=SimpleNamespace(**tell)))


@pytest.mark.parametrize(
    ("ref", "dut", "said"),
    [
        (ROW, ROW.copy(), ""),
        (ROW, np.float32([-0.0, 1.0, 2.5]), "another row: 2 of 3 elements differ"),
        (ROW, ROW.astype(np.float16), "another row: ref f32[3], dut f16[3]"),
        (ROW, ROW[:2], "another row: ref f32[3], dut f32[2]"),
        (None, ROW, None),
        (ROW, None, None),
    ],
)
def test_rows_are_compared_by_their_bytes(ref: Any, dut: Any, said: str | None) -> None:
    found = ask_rows((telling(ref), telling(dut)))(5)
    assert found == (f"token 5 is embedded as {said}" if said else said)


def test_evidence_and_weights_stand_in_the_tree() -> None:
    seen = visit(MOE, differ=READERS, forced=READERS)
    tree = tree_of(*((tag, KeyState.DIFFERS) for tag in READERS))
    starts = start(MOE), start(MOE, weights={"embed.d": 0, "layers.1.wq": 0})
    for one, row in zip(starts, (ROW, ROW + 1), strict=True):
        one.side.engine = telling(row).side.engine
    name_births(tree, found_of(seen, details={Key(9, 9, "x"): detail_of()}), starts)
    assert tree.births is not None
    (birth,) = tree.births.found
    assert (birth.op, birth.clean, birth.weights) == (EMBEDDED, False, ["embed.d"])
    assert birth.evidence == "token 1 is embedded as another row: 3 of 3 elements differ"
