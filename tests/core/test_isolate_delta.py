"""Delta debugging on predicates made up here: minimal, truthful, and within the promised runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, combinations
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.isolate.delta import Differs, Kept, Search, find_guilty, minimise
from parity.isolate.interplay import Interplay, find_interplay, smaller_guilty, smallest

NAMES = "abcdefghijklm"


class Counted:
    """A predicate over the variants that are on, and the sets it was asked for."""

    def __init__(self, differs: Differs) -> None:
        self.differs, self.asked = differs, list[Kept]()

    def __call__(self, kept: Kept) -> bool:
        assert kept not in self.asked, "no set is run twice"
        self.asked.append(kept)
        return self.differs(kept)


def isolate(
    names: str, differs: Differs, alone: str | None = None, likely: str = ""
) -> tuple[list[str] | None, Interplay, int, int]:
    """Guilty set, interplay, runs of the search, runs of the interplay."""
    counted = Counted(differs)
    search = Search(names, counted, red=differs(frozenset(names)))
    assert differs(frozenset(names))
    guilty = find_guilty(search, names if alone is None else alone, likely)
    runs = len(counted.asked)
    if guilty is None:
        return None, Interplay(), runs, 0
    smaller: list[str] | None = guilty
    while smaller is not None:
        guilty = smaller
        interplay = find_interplay(search, guilty, lambda one, other: True)
        smaller = smaller_guilty(search, guilty, interplay)
    return guilty, interplay, runs, len(counted.asked) - runs


def texts(interplay: Interplay) -> list[str]:
    return [str(interaction) for interaction in interplay.found]


@pytest.mark.parametrize("count", range(1, 14))
def test_one_guilty_among_k_takes_at_most_1_plus_log2_k_runs(count: int) -> None:
    names = NAMES[:count]
    for name in names:
        guilty, interplay, runs, more = isolate(names, lambda kept, name=name: name in kept)  # type: ignore[misc]
        assert guilty == [name]
        assert runs <= 1 + ceil(log2(count)) < 2 + log2(count)
        assert (interplay.needed, interplay.found) == ([], [])
        # Alone: each variant once, but for those that the search ran so already.
        assert more <= count


@pytest.mark.parametrize("count", range(2, 14))
def test_a_hint_of_one_takes_one_run(count: int) -> None:
    names = NAMES[:count]
    for name in names:
        guilty, _, runs, _ = isolate(names, lambda kept, name=name: name in kept, alone=name)  # type: ignore[misc]
        assert (guilty, runs) == ([name], 1)


def test_a_wrong_hint_costs_runs_only() -> None:
    guilty, _, runs, _ = isolate(NAMES, lambda kept: "m" in kept, alone="abc", likely="abcd")
    assert guilty == ["m"]
    assert runs > 5


@pytest.mark.parametrize("pair", list(combinations("abcdef", 2)), ids="".join)
def test_two_that_differ_each_alone_are_both_guilty(pair: tuple[str, str]) -> None:
    guilty, interplay, _, _ = isolate("abcdef", lambda kept: not kept.isdisjoint(pair))
    assert guilty == list(pair)
    assert (interplay.needed, interplay.found) == ([], [])


@pytest.mark.parametrize("pair", list(combinations("abcdef", 2)), ids="".join)
def test_one_that_matters_only_with_another(pair: tuple[str, str]) -> None:
    guilty, interplay, _, _ = isolate("abcdef", lambda kept: kept.issuperset(pair))
    assert guilty is not None
    assert {*guilty, *interplay.needed} == set(pair)
    assert texts(interplay) == [f"{guilty[0]} differs only together with {interplay.needed[0]}"]


@pytest.mark.parametrize("pair", list(combinations("abcde", 2)), ids="".join)
def test_two_that_cancel_are_found_beside_the_guilty_one(pair: tuple[str, str]) -> None:
    guilty, interplay, _, _ = isolate("abcdef", lambda kept: "f" in kept or cancel(kept, *pair))
    told = f"{pair[0]} and {pair[1]} cancel: each differs alone, together they do not"
    assert guilty == ["f"]
    assert texts(interplay) == [told]


def cancel(kept: Kept, one: str, other: str) -> bool:
    return (one in kept) != (other in kept)


def test_a_guilty_one_that_another_hides() -> None:
    # c brings the difference, a would bring one and b absorbs it.
    guilty, interplay, _, _ = isolate("abc", lambda kept: "c" in kept or kept == {"a"})
    assert guilty == ["c"]
    assert texts(interplay) == ["b hides a: alone it differs, beside b it does not"]


def test_two_that_only_together_hide_another() -> None:
    def differs(kept: Kept) -> bool:
        return "d" in kept or ("a" in kept and not kept.issuperset("bc"))

    _, interplay, _, _ = isolate("abcd", differs)
    assert texts(interplay) == [
        "b and c together hide a: alone it differs, beside them it does not"
    ]


def acting(kept: Kept) -> bool:
    """e but for s; u and d but not both; l with r; t."""
    early = "e" in kept and "s" not in kept
    return early or cancel(kept, "u", "d") or kept.issuperset("lr") or "t" in kept


@pytest.mark.parametrize("names", ["deiltrsu", "udirlest", "sutrelid"])
def test_red_what_is_said_names_no_idle_variant(names: str) -> None:
    # One variant fewer at a time, u and d always stay: each alone is a cause of its own.
    guilty, interplay, _, _ = isolate(names, acting)
    assert guilty is not None
    (left,) = set(guilty) - {"t"}
    right = next(iter({"l", "r"} - {left}))
    first, second = sorted("ud", key=names.index)
    assert interplay.needed == []
    assert sorted(texts(interplay)) == sorted(
        (
            f"{left} differs only together with {right}",
            f"{first} and {second} cancel: each differs alone, together they do not",
            "s hides e: alone it differs, beside s it does not",
        )
    )


def test_red_what_is_needed_does_not_differ_by_itself() -> None:
    # Without d, u alone would differ beside l, and tell nothing of l.
    guilty, interplay, _, _ = isolate("drul", lambda kept: acting(kept - {"t"}), alone="l")
    assert (guilty, interplay.needed) == (["l"], ["r"])


def test_one_that_differs_beside_others_which_hide_each_other() -> None:
    # b differs but for c; a beside both.
    def differs(kept: Kept) -> bool:
        return kept.issuperset("abc") or ("b" in kept and "c" not in kept)

    _, interplay, _, _ = isolate("abc", differs, alone="a")
    assert texts(interplay)[0] == (
        "a differs beside b and c: alone it does not, nor do they without it"
    )


def test_three_in_one_run_of_two_causes_and_a_needed_one() -> None:
    def differs(kept: Kept) -> bool:
        return "e" in kept or kept.issuperset("ac")

    guilty, interplay, _, _ = isolate("abcdef", differs)
    assert guilty is not None
    assert "e" in guilty
    assert len(guilty) == 2
    assert interplay.needed == []
    other = next(name for name in guilty if name != "e")
    assert texts(interplay) == [f"{other} differs only together with {'ac'.strip(other)}"]


def test_equal_run_whose_variants_cancel() -> None:
    search = Search("abc", lambda kept: cancel(kept, "a", "c"), red=False)
    interplay = find_interplay(search, [], lambda one, other: True)
    assert texts(interplay) == ["a and c cancel: each differs alone, together they do not"]


def test_nothing_is_guilty_where_the_bare_run_differs() -> None:
    guilty, _, runs, _ = isolate("abcd", lambda kept: True)
    assert guilty is None
    assert runs == 4  # two halves of halves, the last one, then none at all


@pytest.mark.parametrize("count", range(1, 12))
def test_all_guilty_with_a_hint_take_a_run_each_and_one_more(count: int) -> None:
    names = NAMES[:count]
    guilty, interplay, runs, more = isolate(names, bool, alone="", likely=names)
    assert guilty == list(names)
    assert runs == (1 + count if count > 1 else 1)
    assert interplay.found == []
    assert more <= count * (count - 1) // 2  # pairs that differ at one key


@st.composite
def functions(draw: st.DrawFn) -> tuple[str, dict[Kept, bool]]:
    """Any boolean function over up to five variants that is red with all of them."""
    names = NAMES[: draw(st.integers(1, 5))]
    sets = [frozenset(part) for size in range(len(names) + 1) for part in combinations(names, size)]
    red = draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets)))
    return names, {**dict(zip(sets, red, strict=True)), frozenset(names): True}


@settings(max_examples=400, deadline=None)
@given(functions(), st.data())
def test_any_function_gives_a_minimal_set_with_true_labels(
    function: tuple[str, dict[Kept, bool]], data: st.DataObject
) -> None:
    names, table = function
    everything = frozenset(names)
    hint = st.lists(st.sampled_from(names), unique=True).map(sorted).map("".join)
    alone, likely = data.draw(st.none() | hint), data.draw(hint)
    guilty, interplay, _, _ = isolate(names, table.__getitem__, alone, likely)
    if guilty is None:
        assert table[frozenset()], "without any variant it still differs"
        return
    rest = everything - set(guilty)
    assert guilty == [name for name in names if name in guilty]
    assert not table[rest]
    assert all(table[rest | {name}] for name in guilty)
    if table[frozenset(guilty)]:
        assert interplay.needed == []
    else:
        needed = frozenset(interplay.needed)
        assert smallest_of(needed, lambda more: table[frozenset(guilty) | more] and not table[more])
    for text in texts(interplay):
        assert true_sentence(text, table), text


SENTENCES = {
    "needs": r"(.) differs only together with (.+)",
    "beside": r"(.) differs beside (.+): alone it does not, nor do they without it",
    "cancel": r"(.) and (.) cancel: each differs alone, together they do not",
    "hides": r"(?P<b>.) hides (?P<a>.): alone it differs, beside (?P=b) it does not",
    "hide": r"(?P<b>.+) together hide (?P<a>.): alone it differs, beside them it does not",
}


def true_sentence(text: str, table: dict[Kept, bool]) -> bool:
    """Whether a sentence is true word by word of the function, and names nothing too many."""
    found = {kind: re.fullmatch(form, text) for kind, form in SENTENCES.items()}
    ((kind, match),) = ((kind, match) for kind, match in found.items() if match is not None)
    one, listed = (match["a"], match["b"]) if kind.startswith("hide") else match.groups()
    *before, last = listed.split(" and ")
    others = frozenset([*(name for part in before for name in part.split(", ")), last])
    name = frozenset(one)
    alone, beside, together = table[name], table[others], table[name | others]
    if kind == "needs":
        return together and not any(table[part] for part in parts(name | others) if part)
    if kind == "beside":
        whole = smallest_of(others, lambda more: table[name | more] and not table[more])
        return whole and not alone and len(others) > 1
    if kind == "cancel":
        return alone and beside and not together
    hidden = smallest_of(others, lambda more: not table[name | more])
    return alone and hidden and (not beside if kind == "hides" else len(others) > 1)


def parts(items: Iterable[str]) -> list[Kept]:
    """Every part of ``items`` but all of them."""
    whole = sorted(items)
    sizes = (combinations(whole, size) for size in range(len(whole)))
    return [frozenset(part) for part in chain.from_iterable(sizes)]


def smallest_of(items: frozenset[str], holds: Differs) -> bool:
    """Whether ``items`` hold, and no part of them does."""
    return holds(items) and not any(holds(part) for part in parts(items))


@pytest.mark.parametrize(
    ("text", "red"),
    [
        ("a differs only together with b", ["ab", "b"]),
        ("a differs only together with b and c", ["abc", "ac"]),
        ("a differs beside b and c: alone it does not, nor do they without it", ["abc", "bc"]),
        ("a and b cancel: each differs alone, together they do not", ["a"]),
        ("b hides a: alone it differs, beside b it does not", ["a", "b"]),
        ("b and c together hide a: alone it differs, beside them it does not", ["a", "ab"]),
    ],
)
def test_red_false_sentence(text: str, red: list[str]) -> None:
    table = {part: "".join(sorted(part)) in red for part in parts("abcd")}
    assert not true_sentence(text, table)


def test_smallest_has_no_part_that_holds() -> None:
    # One by one d, l and u all stay; l alone holds as well.
    holds = [frozenset("dlux"), frozenset("dlu"), frozenset("l")]
    assert smallest("dlux", holds.__contains__) == ["l"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_minimise_leaves_only_what_is_needed(size: int) -> None:
    assert minimise("abcdefgh", lambda kept: kept.issuperset("bg"), size) == ["b", "g"]


def test_red_minimise_must_look_again_after_a_change() -> None:
    # Without b, a is not needed any more: one pass over the items would keep it.
    holds = {frozenset("abc"), frozenset("ac"), frozenset("c")}
    assert minimise("abc", holds.__contains__) == ["c"]
