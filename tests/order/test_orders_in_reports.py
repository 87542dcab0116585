"""How both sides add, in ``parity diff`` and ``isodiff``: found, said, shown, never a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import parity
from parity.errors import InputError
from parity.explain import orders
from parity.explain.orders import LEFT, Finder, add_orders, rows_facts
from parity.keys import LAYER_FIELDS
from parity.order.adapters.called import CalledOp, Floats
from parity.order.sums import Ask, SumAsk
from parity.orders import KeyOrders, SideOrder, SumOrders
from parity.status import Verdict
from parity.tree import Tree
from parity_reports import html_report, markdown_report
from parity_reports.console import ConsoleReport
from parity_reports.summing import SAME, WIDTH, key_sentence, order_sentence
from tests.red.birth_pairs import opened, run_of
from tests.reports import trees

N = 12


def ascending(x: Floats | None, w: Floats) -> Floats:
    """The sum of products, index 0 upward."""
    assert x is not None
    acc = np.zeros(len(w), np.float32)
    for j in range(w.shape[1]):
        acc = acc + x[j] * w[:, j]
    return acc


def by_halves(x: Floats | None, w: Floats) -> Floats:
    """The first half, the second half, then both."""
    assert x is not None
    half = len(x) // 2
    return ascending(x[:half], w[:, :half]) + ascending(x[half:], w[:, half:])


def no_tree(x: Floats | None, w: Floats) -> Floats:
    """A sum in f64: what f32 loses is there, so no count of it is one."""
    assert x is not None
    return (w.astype(np.float64) @ x + 0.25).astype(np.float32)


def fails(x: Floats | None, w: Floats) -> Floats:
    """An op that does not run."""
    raise ZeroDivisionError("a fault of the op")


def refuses(x: Floats | None, w: Floats) -> Floats:
    """An op that says no."""
    raise InputError("that shape is refused", "give another")


class Adding:
    """An engine that tells its sums: one, named "sum", behind the field ``kraw``."""

    def __init__(self, name: str, call: object, rows: object = None) -> None:
        self.name, self.calls = name, (call, rows or call)

    def sums_of(self, field: str, layer: int | None, rows: int) -> Sequence[SumAsk]:
        """None for another field."""
        if field != "kraw":
            return ()
        call = self.calls[rows > 1]
        op = CalledOp(self.name, N, 8, "products", "f32", "f32", call, {"of": str(id(call))})  # type: ignore[arg-type]
        return [SumAsk("sum", Ask(f"{self.name}.sum", N, 8), rows, lambda: op)]


def finder(**given: object) -> Finder:
    """With room for every probe, and nothing known before."""
    return Finder(**{"limit": 1 << 40, "found": {}, **given})  # type: ignore[arg-type]


def tree_of(first: str = "t33_l0_kraw") -> Tree:
    """A red tree without births, whose first key is this one."""
    tree = trees.ALL["explained"]()
    return replace(tree, first=first, births=None, orders=[])


def told(ref: object, dut: object, **given: object) -> KeyOrders:
    """What is told of two engines that add so."""
    tree = tree_of()
    engines = Adding("one", ref), Adding("two", dut)
    add_orders(tree, engines, finder=finder(**given))  # type: ignore[arg-type]
    (found,) = tree.orders
    return found


# --- what is found --------------------------------------------------------------------------------


def test_both_trees_their_names_and_where_they_part() -> None:
    found = told(ascending, by_halves)
    (one,) = found.sums
    assert (found.key, one.sum) == ("t33_l0_kraw", "sum")
    assert one.ref.line == "chain[0..11]"
    assert one.ref.name.startswith("contract 1.5")
    assert one.dut.line == "pairwise(strides [6]) of chain[0..5]"
    assert one.dut.name == ""
    assert one.difference == "two.sum splits K into 2 x 6, one.sum does not"
    assert key_sentence(found) == (
        "sum (ref contract 1.5): two.sum splits K into 2 x 6, one.sum does not"
    )


def test_one_order_is_not_the_cause() -> None:
    found = told(ascending, lambda x, w: ascending(x, w))
    assert found.sums[0].same
    assert found.sums[0].difference == ""
    assert key_sentence(found) == f"sum (contract 1.5): {SAME}"


@pytest.mark.parametrize(
    ("dut", "note"),
    [
        (no_tree, "no tree"),
        (fails, "not probed: internal error: ZeroDivisionError: a fault of the op"),
        (refuses, "not probed: that shape is refused"),
    ],
)
def test_red_what_cannot_be_revealed_is_said(dut: object, note: str) -> None:
    found = told(ascending, dut)
    assert (found.sums[0].dut.note, found.sums[0].dut.digest) == (note, "")
    assert found.sums[0].difference == ""
    assert found.telling is None
    assert key_sentence(found) == f"sum: dut {note}"


def test_a_side_that_tells_no_sums_is_not_probed() -> None:
    tree = tree_of()
    add_orders(tree, (Adding("one", ascending), object()), finder=finder())  # type: ignore[arg-type]
    assert tree.orders[0].sums[0].dut == SideOrder(note="not probed")


def test_no_sum_behind_the_key_says_nothing() -> None:
    tree = tree_of("t33_l0_act")
    add_orders(tree, (Adding("one", ascending), Adding("two", by_halves)))  # type: ignore[arg-type]
    assert tree.orders == []
    assert order_sentence(tree) == ""


def test_one_op_on_both_sides_is_not_probed() -> None:
    tree = tree_of()
    add_orders(tree, (Adding("one", fails), Adding("one", fails)), finder=finder())  # type: ignore[arg-type]
    assert tree.orders == []


# --- what it costs --------------------------------------------------------------------------------


def test_what_costs_too_much_is_skipped_and_said() -> None:
    known: dict[tuple[object, ...], object] = {}
    found = told(ascending, by_halves, limit=1000, found=known)
    said = "skipped: probes of 1,000 numbers are used up; run parity order"
    assert [side.note for side in (found.sums[0].ref, found.sums[0].dut)] == [said, said]
    assert known == {}


def test_a_report_does_not_depend_on_what_is_known_from_before() -> None:
    """With room for one of two sums, the first is told, whether it was probed before or not."""
    known = finder()
    told_alone = told(ascending, by_halves, found=known.found)
    assert told_alone.sums[0].known
    cost = next(iter(known.found.values()))[1]
    for found in ({}, known.found):
        again = told(ascending, by_halves, limit=cost, found=found).sums[0]
        assert (bool(again.ref.digest), bool(again.dut.digest)) == (True, False)
        assert again.dut.note.startswith("skipped: ")


def test_once_the_probes_are_used_up_no_further_key_is_looked_at() -> None:
    tree = trees.ALL["explained"]()
    assert tree.births is not None
    births = [replace(tree.births.found[0], key=f"t33_l{at}_kraw") for at in range(3)]
    tree = replace(tree, orders=[], births=replace(tree.births, found=births))

    class Layered(Adding):
        def sums_of(self, field: str, layer: int | None, rows: int) -> Sequence[SumAsk]:
            (one,) = super().sums_of(field, layer, rows)
            return [replace(one, ask=replace(one.ask, N=8 + (layer or 0)))]

    engines = Layered("one", ascending), Layered("two", ascending)
    add_orders(tree, engines, finder=finder(limit=1000))  # type: ignore[arg-type]
    assert [(found.key, found.note) for found in tree.orders] == [
        ("t33_l0_kraw", ""),
        ("t33_l1_kraw", LEFT),
    ]


def test_a_sum_is_probed_once() -> None:
    asked: list[object] = []

    def reveal(op: object) -> object:
        asked.append(op)
        raise InputError("not today", "")

    known = finder(reveal=reveal)
    tree = tree_of()
    for _ in range(3):
        add_orders(tree, (Adding("one", ascending), Adding("two", by_halves)), finder=known)  # type: ignore[arg-type]
    assert len(asked) == 6  # a refusal is not kept: the next may run
    known = finder()
    for _ in range(3):
        add_orders(tree, (Adding("one", ascending), Adding("two", by_halves)), finder=known)  # type: ignore[arg-type]
    assert len(known.found) == 2
    costs = [cost for _, cost in known.found.values()]
    assert known.spent == 3 * sum(costs)  # what is known costs a report what it cost then


def test_what_is_too_large_is_not_probed() -> None:
    ask = SumAsk("sum", Ask("one.sum", 1 << 12, 1 << 12), 1, lambda: pytest.fail("opened"))
    side, order = finder().side(ask)
    assert (side.note, order) == ("not probed: too large; run parity order", None)


# --- rows -----------------------------------------------------------------------------------------


def test_isodiff_tells_both_trees() -> None:
    engine = Adding("one", ascending, by_halves)
    facts = rows_facts(engine, "t33_l0_kraw", 4, finder())  # type: ignore[arg-type]
    assert facts == [
        ("order", "sum: M = 4 splits K into 2 x 6, M = 1 does not"),
        ("trees", "M = 1: chain[0..11]; M = 4: pairwise(strides [6]) of chain[0..5]"),
    ]


def test_isodiff_tells_one_order_and_none() -> None:
    same = rows_facts(Adding("one", ascending), "t33_l0_kraw", 4, finder())  # type: ignore[arg-type]
    assert same == [("order", "sum: by itself the op adds alike at M = 1 and M = 4 (contract 1.5)")]
    bad = rows_facts(Adding("one", ascending, no_tree), "t33_l0_kraw", 4, finder())  # type: ignore[arg-type]
    assert bad == [("order", "sum: no tree")]
    assert rows_facts(Adding("one", ascending), "t33_l0_x", 4, finder()) == []  # type: ignore[arg-type]


# --- the engines ----------------------------------------------------------------------------------

SUMS = {
    "moe-tiny": {
        **{"nrm": "attn_norm", "kraw": "k_proj", "knorm": "k_norm", "vs": "v_proj"},
        **{"v": "v_proj", "qrope": "q_proj q_norm", "attn": "values l", "ores": "o_proj"},
        **{
            "fnrm": "ffn_norm",
            "rlogits": "router",
            "topp": "softmax",
            "gate": "gate",
            "up": "up",
            "down": "down",
        },
        "x": "combine",
    },
    "next-tiny": {
        **{"nrm": "attn_norm", "qkv": "qkv_proj", "z": "z_proj", "beta": "b_proj", "g": "a_proj"},
        **{
            "qn": "l2norm",
            "kn": "l2norm",
            "s": "mem",
            "o": "mem o",
            "gn": "gdn_norm",
            "ores": "out_proj",
            "fnrm": "ffn_norm",
        },
        **{
            "rlogits": "router",
            "topp": "softmax",
            "gate": "gate",
            "up": "up",
            "down": "down",
            "gs": "shared_gate",
        },
        **{"sh": "shared.gate shared.up shared.down", "x": "combine"},
    },
}


@pytest.mark.parametrize("model", SUMS)
@pytest.mark.parametrize("spec", ["cpu", "emu:fast"])
def test_engines_tell_the_sums_of_their_fields(model: str, spec: str) -> None:
    """Every op that is told can be made at its shape."""
    run = run_of(model, weights="q4")
    engine = opened("dut", spec, run).engine
    found = {}
    for field in LAYER_FIELDS:
        asks = engine.sums_of(field, 0, 1)  # type: ignore[attr-defined]
        if asks:
            found[field] = " ".join(ask.what for ask in asks)
        for ask in asks:
            op = ask.open()
            assert op.name == ask.ask.op
            assert (op.n, op.key["shape"]) == (ask.ask.K, f"K={ask.ask.K} N={ask.ask.N}")
    assert found == SUMS[model]
    (norm,) = engine.sums_of("final_normed", None, 1)  # type: ignore[attr-defined]
    (head,) = engine.sums_of("logits", None, 3)  # type: ignore[attr-defined]
    assert (norm.what, head.what, head.M) == ("final_norm", "lm_head", 3)


def one_key_and_time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a machine that has other things to do."""
    monkeypatch.setattr(orders, "LIMIT", 1 << 40)
    monkeypatch.setattr(orders, "MOST_KEYS", 1)


def test_diff_tells_how_both_sides_add(monkeypatch: pytest.MonkeyPatch) -> None:
    one_key_and_time_enough(monkeypatch)
    tree = parity.diff("cpu", "emu:exact+unpaired", tokens=[5], n=1, prefill="ref").tree
    assert tree.verdict is Verdict.DIVERGED
    first = tree.orders[0]
    assert (first.key, first.sums[0].sum) == ("t1_l0_kraw", "k_proj")
    (one,) = first.sums
    assert (one.ref.name, one.dut.name) == ("contract 1.3", "variant unpaired (1.3)")
    assert one.ref.op == "cpu.q4_matvec K=160 N=192 M=1"
    assert one.dut.op == "emu.q4_matvec@variants=unpaired K=160 N=192 M=1"
    assert "cpu.q4_matvec" in one.difference
    assert "emu.q4_matvec" in one.difference
    assert Tree.from_json(tree.to_json()).orders == tree.orders


def test_red_a_probe_that_fails_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(op: object, *, seed: int) -> object:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("parity.order.reveal.reveal", fails)
    monkeypatch.setattr(orders, "_FOUND", {})
    found = parity.diff("cpu", "emu:exact+router_tree", tokens=[5], n=1, prefill="ref")
    (one,) = found.tree.orders[0].sums
    note = "not probed: internal error: ZeroDivisionError: planted"
    assert (one.ref.note, one.dut.note) == (note, note)
    plain = replace(found.tree, orders=[])
    assert plain.verdict is Verdict.DIVERGED
    assert plain.births is not None
    assert plain.births.found[0].key == found.tree.orders[0].key


def test_hf_tells_its_linears(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    one_key_and_time_enough(monkeypatch)
    found = parity.diff("hf:dense-tiny", "cpu", tokens=[5], n=1, prefill="own").tree
    one = found.orders[0].sums[0]
    assert (one.sum, one.ref.op) == ("k_proj", "torch.linear K=128 N=64 M=1")
    assert one.dut.op == "cpu.f32_matvec K=128 N=64 M=1"
    assert one.known
    assert one.dut.name.startswith("contract 1.5")
    if not one.same:
        assert one.difference.startswith("torch.linear ")


# --- reports --------------------------------------------------------------------------------------


def shown_tree() -> Tree:
    """A tree whose first birth was looked at, and one that was not."""
    ref = SideOrder("cpu.sum K=12 N=8 M=1", "contract 1.5; contract 1.4", "chain[0..11]", "a" * 16)
    dut = SideOrder("emu.sum K=12 N=8 M=1", "", "pairwise(strides [6]) of chain[0..5]", "b" * 16)
    words = "cpu.sum adds K in one run (the first: 0..11), emu.sum splits K into 2 x 6"
    tree = trees.ALL["explained"]()
    assert tree.births is not None
    key = tree.births.found[0].key
    told = KeyOrders(key, [SumOrders("k_proj", ref, dut, words)])
    left = KeyOrders("t33_l8_attn", [SumOrders("values", ref, SideOrder(note="not probed"))], LEFT)
    return replace(tree, orders=[told, left])


def test_console_has_two_lines_of_the_first_birth() -> None:
    said = ConsoleReport().render(shown_tree()).splitlines()
    (at,) = [number for number, line in enumerate(said) if line.startswith("  order ")]
    text = " ".join(line.strip() for line in said[at : at + 2])
    assert text == (
        "order    k_proj (ref contract 1.5): cpu.sum adds K in one run, emu.sum splits K into 2 x 6"
    )
    assert said[at + 2].startswith("  keys ")


def test_console_never_has_more() -> None:
    tree = shown_tree()
    one = replace(tree.orders[0].sums[0], difference="very " * 200 + "long")
    tree = replace(tree, orders=[KeyOrders("t33_l7_attn", [one])])
    assert len(order_sentence(tree)) <= WIDTH
    assert order_sentence(tree).endswith(" ...")


def test_markdown_and_html_have_both_trees_of_every_key() -> None:
    tree = shown_tree()
    markdown, html = markdown_report.render(tree), html_report.render(tree)
    for text in (markdown.replace("\\", ""), html):
        assert "pairwise(strides [6]) of chain[0..5]" in text
        assert "contract 1.5; contract 1.4: chain[0..11] (cpu.sum K=12 N=8 M=1)" in text
        assert "adds K in one run (the first: 0..11)" in text
        assert "not probed" in text
        assert LEFT in text
    assert 'id="order-rows"' in html


def test_reports_without_orders_say_nothing_of_them() -> None:
    tree = trees.ALL["explained"]()
    assert "Both sides add" not in markdown_report.render(tree)
    assert "order-rows" not in html_report.render(tree)
    assert "\n  order " not in ConsoleReport().render(tree)


def test_json_is_read_back() -> None:
    tree = shown_tree()
    again = Tree.from_json(tree.to_json())
    assert again.orders == tree.orders
    body = json.loads(tree.to_json())
    del body["orders"]  # what version 3 wrote
    body["version"] = 3
    assert Tree.from_json(json.dumps(body)).orders == []


@pytest.mark.parametrize("damage", [[{"key": 1}], [{"sums": []}], "text", [{"key": "k", "x": 1}]])
def test_red_damaged_orders_are_refused(damage: object) -> None:
    body = json.loads(shown_tree().to_json())
    body["orders"] = damage
    with pytest.raises(InputError, match="damaged"):
        Tree.from_json(json.dumps(body), "run.json")


def test_a_bisection_tells_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one_key_and_time_enough(monkeypatch)
    given = {"tokens": [5], "n": 1, "prefill": "ref", "bisect": True}
    tree = parity.diff("cpu", "emu:exact+router_tree", **given).tree  # type: ignore[arg-type]
    assert tree.search is not None
    (found,) = (found for found in tree.orders if found.sums)
    (one,) = found.sums
    assert (found.key, one.sum) == ("t1_l0_rlogits", "router")
    assert (one.ref.name.partition(";")[0], one.dut.name) == (
        "contract 1.5",
        "variant router_tree (1.5)",
    )
