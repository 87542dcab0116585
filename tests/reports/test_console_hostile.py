"""Case B07 for the console: data is never markup, and nothing is cut at any width."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.presenting import printable
from parity.tree import Births, KeyRow, KeyState, Tree
from parity_reports import layout
from parity_reports.console import ConsoleReport
from parity_reports.screen import Screen
from tests.reports import trees

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
ELLIPSES = ("…", "...")
HOSTILE = ("gemv[/fast]", "[red]", "/m/<lambda>.gguf", 'a<b>&"c"', "</script>", ":smile:", "[/]")


def show(tree: Tree, width: int = 80) -> str:
    return ConsoleReport().render(tree, Screen(width))


def hostile_tree(word: str) -> Tree:
    row = KeyRow(word, KeyState.DIFFERS, f"{trees.hash_text(1)} f32[4]", trees.hash_text(2))
    return replace(
        trees.red(),
        first=word,
        reason=word,
        keys=[row],
        counts=trees.count([row]),
        ref={"spec": word, "engine": word, "version": word, "device": word, "weights": word},
        run={"model": word, "seed": word, "tokens": word, "positions": word},
        elements=replace(trees.elements(), key=word, note=word),
        inputs=[replace(row, state=KeyState.SAME)],
        notes=[word],
        reproduce=f"parity compare {word}",
        births=hostile_births(word),
        margins=[replace(trees.MARGIN, text=word)],
        greedy=[(33, 1, 2)],
        repro=word,
    )


def hostile_births(word: str) -> Births:
    function = replace(trees.EXPF, function=word)
    first = replace(trees.birth(word, word), ref_kernels=[word], dut_kernels=["k", word])
    first = replace(first, functions=[function])
    return Births([first], complete=False, reason=word, reruns=1, replays=1)


@pytest.mark.parametrize("word", HOSTILE)
@pytest.mark.parametrize("color", [False, True], ids=["plain", "colour"])
@pytest.mark.parametrize("quiet", [False, True], ids=["full", "quiet"])
def test_brackets_are_printed_as_typed(word: str, color: bool, quiet: bool) -> None:
    text = ConsoleReport().render(hostile_tree(word), Screen(color=color), quiet=quiet)
    assert text.count(word) >= (1 if quiet else 6)
    assert ESCAPE.sub("", text) == ConsoleReport().render(hostile_tree(word), quiet=quiet)


@pytest.mark.parametrize("word", HOSTILE)
def test_brackets_in_a_green_run(word: str) -> None:
    tree = replace(trees.green(), notes=[word], run={**trees.RUN, "model": word})
    assert f"  model    {word} seed 7" in show(tree)
    assert f"  note     {word}\n" in show(tree)


def test_control_characters_are_shown_not_sent() -> None:
    tree = hostile_tree("a\x1b[31m\r\nb\u202ec\x00")
    for quiet in (False, True):
        text = ConsoleReport().render(tree, quiet=quiet)
        assert "a\\x1b[31m\\r\\nb\\u202ec\\x00" in text
        assert re.search("[\x00\x0d\x1b\u202e]", text) is None
    assert len(ConsoleReport().render(tree, quiet=True).splitlines()) == 1


def missing_words(text: str, words: list[str]) -> list[str]:
    """The words that do not stand whole on one line of ``text``."""
    return [word for word in words if not any(word in line for line in text.split("\n"))]


def long_tree(size: int) -> tuple[Tree, list[str]]:
    name = "k" * size
    command = f"parity compare {'p' * size} 'two words'"
    rows = [KeyRow(name, KeyState.DIFFERS, f"{'a' * 16} f32[4]", f"{'b' * 16} f32[4]")]
    wide = replace(
        trees.elements().rows[0], ref_hex="c" * size, dut_hex="d" * size, dut_value="9" * size
    )
    tree = replace(
        trees.red(),
        first=name,
        keys=rows,
        counts=trees.count(rows),
        elements=replace(trees.elements(), key=name, rows=[wide]),
        inputs=rows,
        notes=["n" * size],
        reproduce=command,
        births=hostile_births(name),
        repro="r" * size,
    )
    words = [
        f"parity replay {'r' * size}",
        name,
        "a" * 16,
        "b" * 16,
        "c" * size,
        "d" * size,
        "9" * size,
        "n" * size,
        command,
    ]
    return tree, words


@pytest.mark.parametrize("width", [1, 20, 60, 80, 200])
@pytest.mark.parametrize("size", [5, 70, 3000])
def test_nothing_is_cut(width: int, size: int) -> None:
    tree, words = long_tree(size)
    for color in (False, True):
        text = ESCAPE.sub("", ConsoleReport().render(tree, Screen(width, color=color)))
        assert missing_words(text, words) == []
        assert not any(dots in text for dots in ELLIPSES)


@pytest.mark.parametrize("fault", ["ellipsis", "folded"])
def test_red_a_cut_or_folded_word_is_seen(fault: str) -> None:
    tree, words = long_tree(70)
    changed = "k" * 69 + "…" if fault == "ellipsis" else "k" * 35 + "\n" + "k" * 35
    assert missing_words(show(tree).replace("k" * 70, changed), words) == ["k" * 70]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", trees.ALL)
def test_only_what_cannot_fold_is_wider_than_the_screen(name: str, width: int) -> None:
    tree = trees.ALL[name]()
    allowed = [
        show(tree).split("\n", 1)[0],
        tree.reproduce,
        "parity doctor",
        "parity diff",
        "t33_l7_attn",
    ]
    for line in show(tree, width).splitlines():
        unbroken = len(line.split()) == 2 and line.startswith("  dut")  # label and one path
        assert len(line) <= width or unbroken or any(text in line for text in allowed if text)
        assert line == line.rstrip()


def test_every_key_hash_and_value_is_whole_at_any_width() -> None:
    row = trees.red().keys[19]
    words = [row.key, *(row.ref or "").split(), *(row.dut or "").split()[:1]]
    for element in trees.ELEMENTS[:4]:
        words += [str(part) for part in element[1:5]]
    for width in range(20, 120, 7):
        text = ConsoleReport().render(trees.red(), Screen(width, height=100))
        assert missing_words(text, words) == []


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.text(max_size=60), st.integers(20, 90))
def test_any_text_is_shown_in_full(text: str, width: int) -> None:
    tree = replace(trees.not_run(), reason="", notes=[text])
    shown = ESCAPE.sub("", ConsoleReport().render(tree, Screen(width, color=True)))
    assert shown == show(tree, width)
    lines = [line[11:] for line in shown.split("\n")[2:]]
    assert "".join(lines).replace(" ", "") == printable(text).replace(" ", "")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.text("ab é中", max_size=9), max_size=12), st.integers(1, 30))
def test_fold_loses_nothing_and_keeps_the_width(words: list[str], width: int) -> None:
    lines = layout.fold([[(word, "")] for word in words], " · ", width)
    texts = ["".join(text for text, _ in line) for line in lines]
    joined = "".join(texts).replace(" ", "").replace("·", "")
    assert joined == "".join(words).replace(" ", "")
    longest = max((layout.measure(word) for word in words), default=0) + 2
    assert all(layout.measure(text) <= max(width, longest) for text in texts)


def test_runs_of_blanks_and_signs_without_width_survive_folding() -> None:
    modifier = "\U0001f3fb"  # measures no column of its own
    for note in (modifier, f"a {modifier} b"):
        assert f"  note     {note}\n" in show(replace(trees.not_run(), notes=[note]))
    folded = show(replace(trees.not_run(), notes=[f"{'a' * 60}        b {'c' * 60}"])).splitlines()
    assert folded[-2:] == [f"  note     {'a' * 60}        b", f"           {'c' * 60}"]
    folded = show(replace(trees.not_run(), notes=[f"{'a' * 66}        b"])).splitlines()
    assert folded[-2:] == [f"  note     {'a' * 66}", "           b"]
