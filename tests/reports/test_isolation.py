"""What ``parity isolate`` tried: tables on the console and on the page."""

from dataclasses import replace

import pytest

from parity.tree import Isolation, Placement, Transplant, Tree, Trial
from parity_reports.console import ConsoleReport
from parity_reports.html_report import render
from tests.reports import html_page, trees
from tests.reports.test_console_hostile import HOSTILE
from tests.reports.test_why import console, joined, page, with_isolation


def test_placements_that_change_nothing_stand_in_one_line() -> None:
    text = console(trees.isolated())
    assert "  norm, kvquant, lm_head: none, 0 of 35 each\n" in text
    found = trees.isolation()
    equal = [replace(p, first=None, differ=0) for p in found.placements]
    all_equal = with_isolation(placements=equal)(trees.isolated())
    line = "placed   norm, attn, kvquant, lm_head: none, 0 of 35 each\n"
    assert f"\n\n  {line}" in console(all_equal)
    assert "first        keys differ" not in console(all_equal)


def test_a_green_isolation_has_placements_and_no_runs() -> None:
    found = trees.isolation()
    equal = [replace(p, first=None, differ=0) for p in found.placements]
    tried = Isolation(placements=equal, notes=["one note"])
    text = console(replace(trees.green(), isolation=tried))
    assert "  placed   norm, attn, kvquant, lm_head: none, 0 of 35 each\n" in text
    assert "tried" not in text
    assert "  note     one note\n" in text
    html = page(replace(trees.green(), isolation=tried))
    assert "Placement: only this op group computed by the dut, on the same inputs" in html


def test_trials_stand_for_a_ladder_that_is_not_there() -> None:
    tree = with_isolation(ladder=[], guilty=[], reason="none is")(trees.isolated())
    text = joined(console(tree))
    assert "without first difference keys differ" in text
    assert "fma, libm_exp none 0 of 35" in text
    html = page(trees.isolated())  # the page lists them always
    assert "Every set of variants that was tried" in html
    assert "fma, libm_exp sum_order none 0 of 35" in html


def test_red_trials_of_many_variants_stay_one_line_each() -> None:
    names = [f"variant_{number:02}" for number in range(12)]
    sets = ([], names, names[:6], names[6:], names[:2])
    trials = [Trial(names, removed, "start l0_ks row 0 (position 0)", 30, 35) for removed in sets]
    keys = [f"t33_l{number}_knorm" for number in range(8)]
    moved = [Transplant(keys[:1], "t33_l1_x", 5, 35), Transplant(keys[1:], None, 0, 35)]
    change = with_isolation(ladder=[], guilty=[], trials=trials, transplants=moved, variants=names)
    lines = console(change(trees.isolated())).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  without "))
    assert [line.split("  ")[1] for line in lines[at + 1 : at + 6]] == [
        "nothing",
        "all 12",
        "variant_00 and 5 more",
        "variant_06 and 5 more",
        "variant_00, variant_01",
    ]
    assert any(line.startswith("  t33_l1_knorm and 6 more  none ") for line in lines)
    assert max(map(len, lines[at:])) <= 80
    html = page(change(trees.isolated()))
    assert ", ".join(names) in html
    assert ", ".join(keys[1:]) in html


def test_a_ladder_that_begins_with_the_red_run_says_it_once() -> None:
    found = trees.isolation()
    whole = [found.trials[-1], *found.ladder]
    assert console(with_isolation(ladder=whole)(trees.isolated())).count("  nothing  ") == 1
    assert console(trees.isolated()).count("  nothing  ") == 1


def test_two_guilty_variants_are_named_together() -> None:
    trial = replace(trees.isolation().trials[1], removed=["libm_exp", "fma"])
    two = with_isolation(guilty=["fma", "libm_exp"], needed=[], trials=[trial])(trees.isolated())
    words = "variants fma and libm_exp: without them 35 of 35 equal"
    assert words in joined(console(two))
    three = with_isolation(guilty=["fma", "libm_exp", "rsqrt"])(two)
    assert "variants fma, libm_exp and rsqrt" in joined(console(three))
    needing = with_isolation(needed=["rsqrt"])(two)
    assert "35 of 35 equal; differ only together with rsqrt" in joined(console(needing))
    quiet = ConsoleReport().render(two, quiet=True)
    assert quiet.endswith(", level greedy, guilty: fma, libm_exp\n")


def test_tables_fold_to_one_fact_a_line_where_they_are_too_wide() -> None:
    text = console(trees.isolated(), width=40)
    assert "  libm_exp\n    first difference  t33_l8_attn\n    keys differ  2 of 35\n" in text
    assert "keys differ  3 of 35" in text


def hostile(word: str) -> Tree:
    """An isolation in which every name is ``word``."""
    trial = Trial([word], [word], word, 1, 2)
    found = Isolation(
        variants=[word],
        guilty=[word],
        needed=[word],
        reason=word,
        trials=[trial],
        ladder=[trial],
        interactions=[word],
        runs=1,
        placements=[Placement(word, [word], word, 1, 2)],
        transplants=[Transplant([word], word, 1, 2)],
        notes=[word],
    )
    return replace(trees.isolated(), isolation=found)


@pytest.mark.parametrize("word", [*HOSTILE, "w" * 300, "a\x1b[31m"])
def test_hostile_words_are_text_and_whole(word: str) -> None:
    shown = word.replace("\x1b", "\\x1b")
    for width in (20, 80):
        assert console(hostile(word), width=width).count(shown) >= 13
    html = render(hostile(word))
    assert html_page.problems(html) == []
    harmless = html_page.read(render(hostile("harmless"))).text.count("harmless")
    assert html_page.read(html).text.count(shown) == harmless > 15
