"""Each fact that says why is shown in console and HTML, and goes when the tree lacks it."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from parity.presenting import Options
from parity.tree import (
    Birth,
    Births,
    FunctionDiff,
    KeyState,
    Stability,
    Tree,
)
from parity_reports import why, wording
from parity_reports.console import ConsoleReport
from parity_reports.csv_report import CsvReport
from parity_reports.facts import facts
from parity_reports.html_report import render
from parity_reports.html_why import cause_line, reasons
from parity_reports.isolating import guilty_sentence
from parity_reports.screen import Screen
from tests.reports import html_page, trees
from tests.reports.test_junit import properties

Change = Callable[[Tree], Tree]


def console(tree: Tree, width: int = 80) -> str:
    return ConsoleReport().render(tree, Screen(width, height=100))


def joined(text: str) -> str:
    return " ".join(text.split()).replace(" ,", ",")


def page(tree: Tree) -> str:
    return joined(html_page.read(render(tree)).text)


def without_causes(tree: Tree) -> Tree:
    return replace(tree, keys=[replace(row, cause="", source="") for row in tree.keys])


def with_first(**values: object) -> Change:
    """Change the first birth."""

    def change(tree: Tree) -> Tree:
        assert tree.births is not None
        first, *others = tree.births.found
        changed: list[Birth] = [replace(first, **values), *others]  # type: ignore[arg-type]
        return replace(tree, births=replace(tree.births, found=changed))

    return change


def with_births(**values: object) -> Change:
    def change(tree: Tree) -> Tree:
        assert tree.births is not None
        return replace(tree, births=replace(tree.births, **values))  # type: ignore[arg-type]

    return change


def with_isolation(**values: object) -> Change:
    def change(tree: Tree) -> Tree:
        assert tree.isolation is not None
        changed = replace(tree.isolation, **values)  # type: ignore[arg-type]
        return replace(tree, isolation=changed)

    return change


def without(**values: object) -> Change:
    return lambda tree: replace(tree, **values)  # type: ignore[arg-type]


def in_decode(change: Change) -> Change:
    def changed(tree: Tree) -> Tree:
        assert tree.decode is not None
        return replace(tree, decode=change(tree.decode))

    return changed


HALF = replace(trees.EXPF, differ=7, max_ulp=None)
MOVED = replace(trees.MARGIN, text="no near-tie, other logits moved by up to 1 ULP of that size")
# Name: the tree, the words in both reports, and a tree in which that is not so.
FACTS: dict[str, tuple[Callable[[], Tree], str, Change]] = {
    "verdict": (trees.explained, "first at t33_l7_attn, born here", without_causes),
    "source": (trees.inherited, "first at t33_l7_x, inherited from t33_l7_down", without_causes),
    "counts": (
        trees.explained,
        "5 of 35 differ: 1 born here, 4 inherited; 1 masked",
        without_causes,
    ),
    "op": (
        trees.explained,
        "cause attention (contract 1.8); inputs equal: k, ks, qrope",
        with_first(op="something else"),
    ),
    "op unproven": (
        trees.red,
        "op attention (contract 1.8); inputs equal: k, ks, qrope",
        without(first="t33_l7_ores"),
    ),
    "inputs differ": (
        trees.inherited,
        "t33_l7_down: down projection (contract 2); other bytes on the ref's inputs",
        with_first(clean=True),
    ),
    "elements of a birth": (
        trees.inherited,
        "not dumped; 6 of 128 elements differ, at most 1 ULP",
        with_first(elements=None),
    ),
    "function": (
        trees.explained,
        "expf differs in 2 of 264 calls, at most 1 ULP, first at bf8c51e2: "
        "ref 3eab12cd, dut 3eab12ce",
        with_first(functions=[]),
    ),
    "kernels": (
        trees.explained,
        "ran ref attention, dut attention_rows, attention_merge",
        with_first(ref_kernels=["attention_rows"]),
    ),
    "births": (
        trees.explained,
        "attention (contract 1.8): 2 births, t33_l7_attn, t33_l8_attn; 1 equal in the run",
        with_births(found=trees.births().found[:1]),
    ),
    "not dumped": (
        trees.explained,
        "swiglu (contract 1.9): 1 birth, t33_l8_act; found by replay, not dumped",
        with_births(found=trees.births().found[:2]),
    ),
    "not replayed": (
        lambda: with_first(how="inputs")(trees.explained()),
        "attention (contract 1.8): 2 births, t33_l7_attn, t33_l8_attn; 1 not replayed;",
        with_first(how="replay"),
    ),
    "incomplete": (
        trees.inherited,
        "incomplete: stopped after 1 s",
        with_births(complete=True),
    ),
    "cost": (
        trees.explained,
        "naming the births took 2 reruns and 1 replay",
        with_births(reruns=0, replays=0),
    ),
    "stable": (
        trees.explained,
        "repeatable but different (2 runs of each side are equal)",
        without(stability=None),
    ),
    "repeatable": (trees.stable, "repeatable: 20 runs, 35 of 35 keys", without(stability=None)),
    "not repeatable": (
        trees.shaky,
        "dut not repeatable, first at t33_l4_x in run 7 of 20",
        without(stability=Stability(20, "dut", "t33_l4_x", 8)),
    ),
    "runs": (trees.shaky, "run 7 d515b791b32806ef", without(stability=None)),
    "margin": (
        trees.near_tie,
        "t33: ref 1773 over 3837 by 3 ULP; the dut moved them by -2 and +2: a near-tie, "
        "explained by the difference",
        without(margins=[MOVED]),
    ),
    "margin of the decoding": (
        lambda: replace(trees.contaminated(), decode=trees.near_tie()),
        "t33: ref 1773 over 3837 by 3 ULP",
        in_decode(without(margins=[])),
    ),
    "decode": (
        trees.decode_explained,
        "decode from the ref's state: diverged, first at t33_l7_attn, born here;",
        in_decode(without_causes),
    ),
    "cause of the decoding": (
        trees.decode_explained,
        "expf differs in 2 of 264 calls",
        in_decode(without(births=None)),
    ),
    "contaminated": (
        trees.contaminated,
        "contaminated start, first at l0_ks row 3 (position 3)",
        without(reason=""),
    ),
    "replay": (trees.explained, "parity replay 'repro/run 1'", without(repro="")),
    "guilty": (
        trees.isolated,
        "cause variant libm_exp: without it 35 of 35 equal",
        with_isolation(guilty=["fma"]),
    ),
    "needed": (
        trees.isolated,
        "differs only together with sum_order",
        with_isolation(needed=[]),
    ),
    "none guilty": (
        lambda: with_isolation(guilty=[], reason="the run without any differs")(trees.isolated()),
        "no variants are guilty: the run without any differs",
        with_isolation(reason="no other"),
    ),
    "tries": (trees.isolated, "4 runs after the red one; 1 trial known", with_isolation(runs=5)),
    "variants": (
        trees.isolated,
        "known before; variants fma, libm_exp, sum_order",
        with_isolation(variants=["fma"]),
    ),
    "interaction": (
        trees.isolated,
        "sum_order alone is equal, with libm_exp it is not",
        with_isolation(interactions=[]),
    ),
    "remark": (trees.isolated, "fma changes no op of this model", with_isolation(notes=[])),
    "ladder": (
        trees.isolated,
        "nothing t33_l7_attn 5 of 35 libm_exp t33_l8_attn 2 of 35 and sum_order none 0 of 35",
        with_isolation(ladder=[]),
    ),
    "placement": (trees.isolated, "attn attn t33_l7_attn 3 of 35", with_isolation(placements=[])),
    "transplant": (
        trees.isolated,
        "t33_l7_attn t33_l8_attn 2 of 35 and t33_l8_attn none 0 of 35",
        with_isolation(transplants=[]),
    ),
}
each_fact = pytest.mark.parametrize("name", FACTS)


@each_fact
def test_the_console_shows_it_and_only_then(name: str) -> None:
    build, words, change = FACTS[name]
    assert words in joined(console(build()))
    assert words not in joined(console(change(build())))


@each_fact
def test_the_page_shows_it_and_only_then(name: str) -> None:
    build, words, change = FACTS[name]
    assert words in page(build())
    assert words not in page(change(build()))
    assert html_page.problems(render(build())) == []


def test_the_strip_says_diff_before_born_and_inherited() -> None:
    text = console(trees.explained())
    assert "attn DIFF born · ores DIFF inherited · x DIFF inherited\n" in text
    other = replace(trees.explained(), first="t33_l8_nrm", elements=None)
    strip = joined(console(other))
    assert "t33 layer 8: nrm DIFF inherited · kraw ok · knorm ok · k masked ·" in strip
    assert "attn born, equal ·" in strip
    assert "DIFF born" not in console(without_causes(trees.explained()))


def test_a_red_diff_is_one_screen() -> None:
    """The default console of a diff with its cause: what a terminal shows at once, about."""
    assert len(console(trees.red()).splitlines()) <= 24
    assert trees.births().found[0].functions
    one = replace(trees.births().found[0], dut_kernels=["attention"])
    usual = replace(trees.explained(), repro="", births=replace(trees.births(), found=[one]))
    assert len(console(usual).splitlines()) <= 26
    assert max(map(len, console(usual).splitlines())) <= 80


def many_births(ops: int, each: int) -> Births:
    found = [
        trees.birth(f"t{pos}_l0_f{op}", f"op {op}") for op in range(ops) for pos in range(each)
    ]
    return Births(found, complete=True, reason="", reruns=2, replays=4)


def test_many_births_are_counted_and_the_first_named() -> None:
    tree = replace(trees.explained(), births=many_births(6, 192))
    text = console(tree)
    assert "  births   op 0: 192 births, first t0_l0_f0\n" in text
    assert "           op 3: 192 births, first t0_l0_f3\n" in text
    assert "           2 more ops with 384 births\n" in text
    html = page(tree)
    assert "op 5: 192 births, first t0_l0_f5" in html
    assert "1,152 births; this file lists the first 100, the JSON all" in html


def test_births_that_nobody_could_name_say_why() -> None:
    lacking = Births([], False, "dut lacks the capability 'replay'", 0, 0)
    tree = replace(trees.red(), births=lacking)
    words = "not named: dut lacks the capability 'replay'"
    assert f"  births   {words}\n" in console(tree)
    assert words in page(tree)
    assert "op       attention (contract 1.8)" in console(tree)  # no cause was shown
    nothing = replace(lacking, complete=True, reason="")
    assert "  births   none found\n" in console(replace(tree, births=nothing))


def test_the_only_birth_is_told_with_its_op() -> None:
    one = with_births(found=trees.births().found[:1])(trees.explained())
    text = console(one)
    assert "  cause    attention (contract 1.8), only birth; inputs equal: k, ks, qrope\n" in text
    assert "  births  " not in text
    doubtful = with_births(complete=False, reason="stopped")(one)
    assert "only birth" not in console(doubtful)
    assert "  births   attention (contract 1.8): 1 birth, t33_l7_attn\n" in console(doubtful)
    assert "           incomplete: stopped\n" in console(doubtful)
    assert "attention (contract 1.8), only birth; inputs equal: k, ks, qrope" in page(one)


def test_births_in_the_prompt_say_why_the_start_differs() -> None:
    prompt = trees.birth("t3_l0_attn")
    decoded = trees.decode_explained()
    unsearched = Births(trees.births().found, False, "the prompt was not dumped", 2, 1)
    text = console(replace(decoded, births=unsearched))
    start, births, decode = (text.index(f"\n  {name} ") for name in ("start", "births", "decode"))
    assert start < births < decode
    assert "  births   incomplete: the prompt was not dumped\n" in text
    assert "naming the births took 4 reruns and 2 replays\n" in text
    found = replace(unsearched, found=[prompt, *unsearched.found], complete=True, reason="")
    row = trees.key_row("t3_l0_attn", KeyState.DIFFERS, 77)
    known = replace(decoded, births=found, first=row.key, keys=[row, *decoded.keys])
    known = replace(known, counts=trees.count(known.keys))
    assert "  cause    t3_l0_attn: attention (contract 1.8); inputs equal\n" in console(known)
    assert "  births   attention (contract 1.8): 3 births, t3_l0_attn, " in console(known)
    assert "t3 layer 0: attn DIFF\n" in console(known)  # and not the decoding's layer
    assert "t3_l0_attn: attention (contract 1.8); inputs equal" in page(known)
    assert "births incomplete: the prompt was not dumped" in page(
        replace(decoded, births=unsearched)
    )


def test_a_function_that_is_equal_is_not_blamed() -> None:
    same = FunctionDiff("expf", 264, 0, "", "", "", None)
    assert why.function_sentence(same) == "expf equal in all 264 calls"
    assert why.function_sentence(HALF).startswith("expf differs in 7 of 264 calls, first at ")


def test_whether_the_functions_are_all_is_said_where_it_was_asked() -> None:
    birth = trees.births().found[0]
    assert why.explained_sentence(birth) == ""
    all_of_it = replace(birth, explained=True)
    assert why.explained_sentence(all_of_it) == "with the dut's expf the ref gives the dut's bytes"
    more = why.explained_sentence(replace(birth, explained=False))
    assert more == "with the dut's expf the ref still differs: something else is changed too"
    tree = replace(trees.explained(), births=replace(trees.births(), found=[all_of_it]))
    for shown in (console(tree), page(tree)):
        assert "the ref gives the dut" in " ".join(shown.split())


def test_one_kernel_on_both_sides_and_none_recorded() -> None:
    birth = replace(trees.birth(trees.FIRST), ref_kernels=["a", "b"], dut_kernels=["a", "b"])
    assert why.kernels_sentence(birth) == "ran a, b on both sides"
    assert why.kernels_sentence(replace(birth, dut_kernels=[])) == "ran ref a, b, dut not recorded"
    assert why.kernels_sentence(trees.birth(trees.FIRST)) == ""


def test_flips_beyond_four_are_counted() -> None:
    margins = [replace(trees.MARGIN, pos=pos) for pos in range(33, 39)]
    greedy = [(pos, 1773, 3837) for pos in range(33, 39)]
    tree = replace(trees.near_tie(), greedy=greedy, margins=margins)
    text = joined(console(tree))
    assert "greedy other token at 6 of 6 positions t33: ref 1773" in text
    assert "t36: ref" in text
    assert "t37: ref" not in text
    assert "2 more stable" in text
    assert "t38: ref 1773" in page(tree)


def test_flips_without_a_margin_are_still_named() -> None:
    greedy = [(33, 1773, 3837), (34, 1, 2)]
    text = joined(console(replace(trees.near_tie(), greedy=greedy)))
    assert "other token at 2 of 2 positions: t34 ref 1 dut 2 t33: ref 1773" in text


QUIET = {
    "explained": "diverged: t33_l7_attn born here, 5 of 35 keys, level greedy\n",
    "inherited": "diverged: t33_l7_x inherited from t33_l7_down, 2 of 35 keys, level greedy\n",
    "stable": "same: 35 of 35 keys, level bit, repeatable: 20 runs\n",
    "shaky": "unstable: dut not repeatable, first at t33_l4_x in run 7 of 20\n",
}


@pytest.mark.parametrize("name", QUIET)
def test_quiet_says_it_in_one_line(name: str) -> None:
    assert ConsoleReport().render(trees.ALL[name](), quiet=True) == QUIET[name]


def test_one_engine_against_itself_is_one_side() -> None:
    text = console(trees.stable())
    assert "  engine   cuda:exact    parity_cuda 0.4.0, NVIDIA H200\n" in text
    assert "  ref " not in text
    other = replace(trees.stable(), ref=dict(trees.REF))
    assert "  ref      cpu" in console(other)
    assert "Repeatable yes 20 runs, each with the bytes of the first" in page(trees.stable())
    assert "engine cuda:exact parity_cuda 0.4.0" in page(trees.stable())
    assert "Repeatable" not in page(trees.green())


def test_a_reason_that_says_where_is_not_said_twice() -> None:
    reason = "not repeatable, first at start state l0_k row 3 in run 7"
    found = Stability(20, "dut", "l0_k row 3", 7)
    tree = replace(trees.unstable(), reason=reason, first=None, stability=found)
    assert console(tree).split("\n", 1)[0] == f"UNSTABLE  {reason} of 20"


def test_the_repro_folder_stands_under_the_command() -> None:
    text = console(trees.explained())
    folder = "  repro folder repro/run 1: parity replay 'repro/run 1'\n"
    assert f"  {trees.COMMAND}\n{folder}" in text
    assert "repro folder" not in console(trees.red())


def test_csv_has_cause_and_source() -> None:
    import pandas as pd

    stream = io.StringIO()
    CsvReport().write(trees.explained(), stream, Options())
    text = io.StringIO(stream.getvalue())
    rows = pd.read_csv(text, dtype=str, keep_default_na=False).set_index("key")
    assert list(rows.loc["t33_l7_x", ["state", "cause", "source"]]) == [
        *("differs", "inherited", "t33_l7_attn"),
    ]
    assert list(rows.loc["t33_l8_k", ["state", "cause", "source"]]) == [
        *("same", "masked", "t33_l7_attn"),
    ]
    assert list(rows.loc["t33_l6_x", ["cause", "source"]]) == ["", ""]


def test_junit_has_causes_in_cases_and_properties() -> None:
    from parity_reports.junit_report import render as junit

    xml = junit(trees.explained())
    assert "t33_l7_attn differs, born here: ref 5c55827df1d1b1a4" in xml
    assert "t33_l7_x differs, inherited from t33_l7_attn: ref " in xml
    assert 'type="born here"' in xml
    found = properties(trees.explained())
    assert found["cause"] == "attention (contract 1.8); inputs equal: k, ks, qrope"
    assert found["births.1"].startswith("attention (contract 1.8): 2 births, ")
    assert found["births.2"].startswith("swiglu (contract 1.9): 1 birth, ")
    assert found["births.cost"] == "naming the births took 2 reruns and 1 replay"
    assert found["stability"].startswith("repeatable but different")
    assert found["repro"] == "repro/run 1"
    assert properties(trees.isolated())["guilty"].startswith("variant libm_exp: ")
    assert properties(trees.near_tie())["margin.33"].startswith("t33: ref 1773 over 3837")
    decoded = properties(trees.decode_explained())
    assert decoded["decode.births.1"] == found["births.1"]
    assert decoded["decode.cause"] == found["cause"]
    assert not {"births.1", "cause"} & set(decoded)
    plain = properties(trees.red())
    assert not {"cause", "births.1", "stability", "repro", "guilty"} & set(plain)


def test_what_makes_the_first_key_is_not_to_blame_for_another_start() -> None:
    """An engine that begins another run with other bytes: no op is named and no key."""
    stability = trees.shaky().stability
    assert stability is not None
    said = replace(stability, tree=trees.red())
    tree = replace(trees.unstable(), first=None, stability=said)
    assert wording.starts_apart(tree)
    assert not wording.starts_apart(replace(tree, first=trees.FIRST))
    assert not any(fact.label in ("op", "cause") for fact in facts(tree))
    assert (cause_line(tree), reasons(tree)) == ("", [])


def test_a_key_that_only_differs_has_no_line_of_its_own() -> None:
    plain = replace(trees.red(), elements=None)
    assert cause_line(plain) == ""
    assert cause_line(trees.red()).startswith(f"{trees.FIRST}: differs; 6 of 128 elements")
    assert cause_line(replace(trees.explained(), elements=None)) == f"{trees.FIRST}: born here"


def test_variants_tried_with_the_prompts_keys_say_so() -> None:
    said = guilty_sentence(trees.isolated())
    tree = trees.isolated()
    more = replace(tree, counts=replace(tree.counts, same=tree.counts.same - 1))
    assert "the prompt's keys too" not in said
    assert guilty_sentence(more).startswith(
        "variant libm_exp: without it 35 of 35 equal, the prompt's keys too; "
    )
