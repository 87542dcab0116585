"""What isolation is built from: facts of a trial, specs of trials, places, groups, hints, keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from parity.dump import Dump, Entry, TensorType
from parity.families import every_field
from parity.isolate.isolation import hints
from parity.isolate.placement import GROUPS, groups_of, mixed_notes
from parity.isolate.transplant import made_keys, parse_keys
from parity.isolate.trial_cache import dut_facts, run_facts
from parity.isolate.trials import first_place, in_contract_order, respelled
from parity.keys import FINAL_FIELDS, LAYER_FIELDS, Key
from parity.model.model import synthetic
from parity.runs.run import Run, SideRun
from parity.spec import EngineSpec, parse_spec
from parity.status import Level, Verdict
from parity.tree import Birth, Births, Counts, StateDiff, Tree
from parity.variants import ACTS_ON, TIERS, VARIANTS

RUN = Run(synthetic("moe-tiny", 7), (1, 2, 3), n=2)
F32 = TensorType("f32", (4,))


# --- what names a kept result ---------------------------------------------------------------------


def done(**changes: Any) -> SideRun:
    entries = [Entry(Key(3, 0, "nrm"), 1, F32), Entry(Key(3, 0, "x"), 2, F32)]
    header = {"kernels": "a", "version": "1", "options": "none"}
    state = {"lengths": np.array([3], np.int32), "l0_k": np.zeros((3, 2), np.int8)}
    values = {"dump": Dump(header, {"": entries}), "fed": [7, 8], "start": state, "end": state}
    return SideRun(**{**values, "choices": {}, **changes})


def changed_state() -> dict[str, np.ndarray]:
    return {**(done().start or {}), "l0_k": np.ones((3, 2), np.int8)}


def dump_with(**header: str) -> Dump:
    dump = done().dump
    return replace(dump, header={**dump.header, **header})


@pytest.mark.parametrize(
    "other",
    [
        run_facts(RUN, done(dump=dump_with(kernels="b"))),
        run_facts(RUN, done(dump=dump_with(version="2"))),
        run_facts(RUN, done(dump=dump_with(options="-O3"))),
        run_facts(RUN, done(dump=Dump(done().dump.header, {"": done().dump.entries[:1]}))),
        run_facts(RUN, done(fed=[7, 9])),
        run_facts(RUN, done(start=changed_state())),
        run_facts(RUN, done(end=changed_state())),
        run_facts(replace(RUN, prefill="ref"), done()),
        run_facts(replace(RUN, tokens_from="own"), done()),
        run_facts(replace(RUN, dump_prefill=True), done()),
        run_facts(replace(RUN, n=3), done()),
    ],
    ids=[
        *("kernels", "version", "options", "keys", "tokens", "start", "end"),
        *("prefill", "tokens_from", "dump_prefill", "n"),
    ],
)
def test_each_part_of_the_run_and_of_the_ref_names_the_trial(other: dict[str, str]) -> None:
    assert run_facts(RUN, done()) == run_facts(RUN, done())
    assert other != run_facts(RUN, done())


class Told:
    """An engine that says what it is made of."""

    name, version = "told", "1"
    told: ClassVar[dict[str, str]] = {"kernels": "a", "device": "d"}

    def describe(self) -> dict[str, str]:
        return self.told


class NewKernels(Told):
    """Its kernels are others."""

    told: ClassVar[dict[str, str]] = {"kernels": "b", "device": "d"}


class NewVersion(Told):
    """Its version is another."""

    version = "2"


@pytest.mark.parametrize(
    "other",
    [
        dut_facts(NewKernels(), "exact", ["fma"], {}),  # type: ignore[arg-type]
        dut_facts(NewVersion(), "exact", ["fma"], {}),  # type: ignore[arg-type]
        dut_facts(Told(), "fast", ["fma"], {}),  # type: ignore[arg-type]
        dut_facts(Told(), "exact", [], {}),  # type: ignore[arg-type]
        dut_facts(Told(), "exact", ["fma"], {"shuffled": "2"}),  # type: ignore[arg-type]
    ],
    ids=["kernels", "version", "tier", "variants", "options"],
)
def test_each_part_of_the_dut_names_the_trial(other: dict[str, str]) -> None:
    told = dut_facts(Told(), "exact", ["fma"], {})  # type: ignore[arg-type]
    assert told == dut_facts(Told(), "exact", ["fma"], {})  # type: ignore[arg-type]
    assert other != told


# --- specs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tier", "left", "spelled"),
    [
        ("cpu:fast", "fast", TIERS["fast"] - {"fma", "rsqrt"}, "cpu:fast-rsqrt-fma"),
        ("cpu:fast-fma", "fast", TIERS["fast"] - {"fma", "rsqrt"}, "cpu:fast-rsqrt-fma"),
        ("emu:exact+fma+two_pass@shuffled=3", "exact", {"fma"}, "emu:exact+fma@shuffled=3"),
        ("emu+fma@descending", "exact", set(), "emu@descending"),
        ("a.b:C:own+mine+other", "own", {"other"}, "a.b:C:own+other"),
    ],
)
def test_trial_is_spelled_as_one_would_type_it(
    text: str, tier: str, left: set[str], spelled: str
) -> None:
    spec = parse_spec(text, ["cpu", "emu"])
    assert isinstance(spec, EngineSpec)
    made = respelled(spec, tier, frozenset(left))
    assert made.text == spelled
    assert made == parse_spec(spelled, ["cpu", "emu"])


def test_variants_stand_in_the_contracts_order_and_own_ones_after_them() -> None:
    assert in_contract_order({"zeta", "fold_p", "alpha", "rsqrt"}) == [
        *("rsqrt", "fold_p"),
        *("alpha", "zeta"),
    ]


# --- where a run first differs --------------------------------------------------------------------


def tree(first: str | None, verdict: Verdict = Verdict.DIVERGED, **states: str | None) -> Tree:
    told = [StateDiff(when, [], place) for when, place in states.items()]
    counts = Counts(1, 1, 1, 0, 0, 0)
    return Tree(verdict, first, counts, Level.NONE, Level.BIT, {}, {}, states=told)


@pytest.mark.parametrize(
    ("found", "place"),
    [
        (tree(None, Verdict.SAME, start=None, end=None), None),
        (tree("t4_l0_x", start=None, end="l0_k row 4"), "t4_l0_x"),
        (tree("t3_l0_x", start="l0_ks row 1", end=None), "start l0_ks row 1"),
        (tree("t2_l0_x", start="l0_ks row 1", end=None), "t2_l0_x"),
        (tree(None, start="l0_ks row 1", end=None), "start l0_ks row 1"),
        (tree(None, start=None, end="l0_v row 2"), "end l0_v row 2"),
        (tree(None, start=None, end=None), "weights embed.qs"),
    ],
)
def test_first_place(found: Tree, place: str | None) -> None:
    assert first_place(found, RUN, ["embed.qs", "lm_head.qs"]) == place


# --- groups ---------------------------------------------------------------------------------------


def test_every_field_of_the_schema_stands_in_one_group() -> None:
    grouped = [name for fields in GROUPS.values() for name in fields]
    assert sorted(grouped) == sorted((*LAYER_FIELDS, *FINAL_FIELDS))


@pytest.mark.parametrize("model", ["moe-tiny", "dense-tiny", "hybrid-tiny"])
def test_every_field_of_a_model_is_placed_once(model: str) -> None:
    config = synthetic(model, 0).config
    placed = [name for fields in groups_of(config).values() for name in fields]
    assert sorted(placed) == sorted(every_field(config))
    assert ("gate" in groups_of(config)) == (model == "hybrid-tiny")
    (note,) = mixed_notes(config)
    assert ("gate holds" in note) == (model == "hybrid-tiny")


# --- hints ----------------------------------------------------------------------------------------


def births(*keys: str) -> Births:
    found = [Birth(key, "", "replay", True, "differs", True, "", "") for key in keys]
    return Births(found, True, "", 2, 1)


@pytest.mark.parametrize(
    ("born", "alone", "likely"),
    [
        ((), [*VARIANTS, "mine"], []),
        (
            ("t3_l0_attn",),
            ["libm_exp", "exp_via_double", "two_pass", "div_by_inverse", "split_keys"],
            ...,
        ),
        (("t3_l0_attn", "t3_l1_act"), ["libm_exp", "exp_via_double"], ...),
        (("t3_l0_nrm", "t4_l1_rlogits"), [], ["rsqrt", "norm_tree", "fma", "router_tree"]),
    ],
)
def test_births_say_which_variants_can_be_to_blame(
    born: tuple[str, ...], alone: list[str], likely: Any
) -> None:
    found = hints([*VARIANTS, "mine"], [births(*born)] if born else [])
    assert found[0] == (alone if not born else [*alone, "mine"])
    if likely is not ...:
        assert found[1] == (likely if not born else [*likely, "mine"])


def test_every_variant_stands_in_the_table() -> None:
    assert list(ACTS_ON) == list(VARIANTS)
    assert set().union(*ACTS_ON.values()) <= {*LAYER_FIELDS, *FINAL_FIELDS}


# --- keys -----------------------------------------------------------------------------------------


def test_keys_of_a_run_are_those_of_its_dumped_steps() -> None:
    keys = made_keys(RUN)
    assert {key.pos for key in keys} == {3, 4}
    assert len(keys) == len(set(keys)) == 2 * (4 * (11 + 8) + 2)
    assert {key.pos for key in made_keys(replace(RUN, dump_prefill=True))} == {0, 1, 2, 3, 4}


def test_typed_keys_are_put_in_dataflow_order_once_each() -> None:
    typed = ["t4_logits", "t3_l1_x", "t4_logits", "t3_l1_gate"]
    assert parse_keys(typed, RUN) == [
        *(Key(3, 1, "gate"), Key(3, 1, "x")),
        Key(4, None, "logits"),
    ]
