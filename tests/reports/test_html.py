"""The HTML report: safe, whole, the same words as the console, at every verdict and size."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from parity.errors import ParityBug
from parity.presenting import Options, printable
from parity.status import Level, Verdict
from parity.tree import CONTAMINATED, Elements, KeyRow, KeyState, Tree
from parity_reports import html_data, html_elements, html_shell, wording
from parity_reports.axes import leading_axis
from parity_reports.html_report import HtmlReport, render
from parity_reports.html_shell import data_block
from parity_reports.states import state_name
from tests.reports import html_page, trees
from tests.reports.test_console_hostile import HOSTILE, hostile_tree, long_tree

each_tree = pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))
WORDS = ("gemv[/fast]", "[red]", "/m/<lambda>.gguf", 'a<b>&"c"', "</script>", *HOSTILE)
LIMIT = 500_000  # characters of the page of a default run


def text_of(tree: Tree) -> str:
    """The visible text of the page of ``tree``, blanks as one, none before a comma."""
    return " ".join(html_page.read(render(tree)).text.split()).replace(" ,", ",")


def joined(text: str) -> str:
    return " ".join(text.split())


def sections(tree: Tree) -> list[str]:
    return [e.attributes["id"] for e in html_page.read(render(tree)).all("section")]


# Safety


@each_tree
def test_page_is_well_formed_and_loads_nothing(build: Callable[[], Tree]) -> None:
    assert html_page.problems(render(build())) == []


TAMPERED = {
    "handler": ("<main>", '<main onclick="x()">', "inline onclick in <main>"),
    "svg handler": ("<path ", '<path onload="x()" ', "inline onload in <path>"),
    "style": ("<main>", '<main style="color:red">', "inline style in <main>"),
    "picture": ("<main>", '<main><img src="x.png">', "element <img>"),
    "link": ("<main>", '<main><a href="https://x.example/">x</a>', "reference https://x"),
    "script link": ("<main>", '<main><a href="javascript:x()">x</a>', "reference javascript:x()"),
    "frame": ("<main>", '<main><iframe src="x"></iframe>', "element <iframe>"),
    "changed script": ('"use strict";', '"use strict"; x();', "the policy does not name"),
    "changed style": ("* { box-sizing", "* { color: red; box-sizing", "the policy does not name"),
    "second script": ("</main>", "</main><script>x()</script>", "1 styles and 2 scripts"),
    "loose policy": ("default-src &#39;none&#39;", "default-src *", "the policy does not name"),
    "late policy": ("<head>", '<head><meta charset="utf-8">', "the policy is not the first"),
    "font": ("</style>", "@import 'x';</style>", "@import in <style>"),
    "html": ("})();", "document.body.innerHTML = 1; })();", "innerHTML in <script>"),
    "not closed": ("</main>", "", "</body> closes <main>"),
    "same id": ("<main>", '<main id="verdict">', "id verdict given twice"),
    "dead link": ('id="provenance"', 'id="other-name"', "no id provenance for a link"),
    "letter": ("<main>", "<main>\N{MIDDLE DOT}", "a character that is not ASCII"),
}


@pytest.mark.parametrize("fault", TAMPERED)
def test_red_a_tampered_page_is_named(fault: str) -> None:
    old, new, problem = TAMPERED[fault]
    page = render(trees.red())
    assert page.count(old) >= 1
    found = html_page.problems(page.replace(old, new, 1))
    assert any(line.startswith(problem) for line in found), found


@pytest.mark.parametrize("word", WORDS)
def test_hostile_words_are_text_and_nothing_else(word: str) -> None:
    page = html_page.read(render(hostile_tree(word)))
    harmless = html_page.read(render(hostile_tree("harmless")))
    assert html_page.problems(render(hostile_tree(word))) == []
    shape = [(element.tag, list(element.attributes)) for element in page.elements]
    assert shape == [(element.tag, list(element.attributes)) for element in harmless.elements]
    assert page.text.count(word) == harmless.text.count("harmless") > 15


@pytest.mark.parametrize("word", ["<b>", "</style>", "<img src=x>"])
def test_red_without_escaping_a_word_becomes_markup(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = html_shell.environment()
    monkeypatch.setattr(environment, "autoescape", False)
    monkeypatch.setattr(environment, "cache", None)
    assert html_page.problems(render(hostile_tree(word))) != []


@pytest.mark.parametrize("word", [*WORDS, "x/y", "a\x1bb\u202ec"])
def test_hostile_segments_in_the_data_block(word: str) -> None:
    rows = [replace(row, segment=word) for row in trees.red().keys]
    html = render(replace(trees.red(), keys=rows))
    page = html_page.read(html)
    assert html_page.problems(html) == []
    block = html_page.Element("", {}) if (found := page.by_id("data")) is None else found
    assert not set("<>&") & set(block.text)
    assert {segment for segment, _, _ in page.data["rows"]} == {printable(word)}


def test_data_block_cannot_end_its_element() -> None:
    text = data_block({"a": "</script><!--&amp;\u2028"})
    assert not set("<>&") & set(text)
    assert text.isascii()


def test_control_characters_and_other_letters() -> None:
    tree = replace(trees.red(), notes=["a\x00\x1b\u202e\udc80b", "\N{GREEK SMALL LETTER MU}\u4e2d"])
    text = text_of(tree)
    assert "a\\x00\\x1b\\u202e\\udc80b" in text
    assert "\N{GREEK SMALL LETTER MU}\u4e2d" in text
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    HtmlReport().write(tree, stream, Options())


# Words


def console_sentences(tree: Tree) -> list[str]:
    """What the console says of ``tree``, sentence by sentence."""
    spans = wording.verdict_spans(tree)[2:]
    found = ["".join(text for text, _ in spans), *tree.notes, tree.reproduce]
    if tree.verdict is Verdict.NOT_RUN:
        found += wording.reason_lines(tree)
    if tree.counts.total:
        found.append(wording.keys_sentence(tree))
    found += [f"(asked for: {tree.level_asked})"] if tree.verdict is not Verdict.NOT_RUN else []
    start = [state for state in tree.states if state.when == "start" and not state.equal]
    contaminated = tree.reason == CONTAMINATED
    found += [
        wording.parts_sentence(start[0]) if contaminated else wording.states_sentence(tree.states)
    ]
    found += [wording.run_sentence(tree.run)]
    found += [wording.side_facts(tree.ref), wording.side_facts(tree.dut)]
    found += [wording.inputs_sentence(tree)] if tree.inputs else []
    found += [wording.greedy_sentence(tree)] if tree.greedy else []
    found += [wording.control_sentence(tree.control)] if tree.control else []
    found += [wording.search_sentence(tree.search)] if tree.search else []
    found += [wording.decode_sentence(tree.decode)] if tree.decode else []
    if tree.elements:
        axis = leading_axis(tree.elements)
        found.append(wording.elements_sentence(tree.elements, axis, bins=True))
    return [joined(sentence) for sentence in found if sentence]


@each_tree
def test_same_sentences_as_the_console(build: Callable[[], Tree]) -> None:
    text = text_of(build())
    assert [line for line in console_sentences(build()) if line not in text] == []


def test_red_another_sentence_is_missed() -> None:
    text = text_of(replace(trees.red(), greedy=[(33, 1, 2)]))
    missing = [line for line in console_sentences(trees.red()) if line not in text]
    assert missing == ["same token at 1 of 1 positions"]


VERDICTS = {"green": "Same", "red": "Diverged", "unstable": "Unstable", "not_run": "Not run"}


@pytest.mark.parametrize(("name", "word"), VERDICTS.items())
def test_one_word_first(name: str, word: str) -> None:
    page = html_page.read(render(trees.ALL[name]()))
    assert [element.text for element in page.all("h1")] == [word]
    order = [
        page.text.index(part) for part in (word, "Reproduce", "asked for") if part in page.text
    ]
    assert order == sorted(order)


def test_everything_that_decides_stands_before_the_first_section() -> None:
    html = render(trees.red())
    top = " ".join(html_page.read(html[: html.index("<section")]).text.split())
    for part in (
        *("Diverged", f"first at {trees.FIRST}", "equal: k, ks, qrope", trees.COMMAND),
        *("5 of 35", "30 of 35", "6 of 128", "Level: greedy (asked for: bit)"),
        "Control fired: 1 ULP at t34_l19_qrope element 12, found at that key",
    ):
        assert part in top


def test_levels_say_how_far_the_runs_agree() -> None:
    logits = replace(trees.red(), level=Level.LOGITS)
    for tree, words in (
        (trees.red(), ["no", "no", "yes"]),
        (logits, ["no", "yes", "yes"]),
        (trees.green(), ["yes", "yes", "yes"]),
        (trees.unstable(), ["no", "no", "no"]),
    ):
        items = html_page.read(render(tree)).all("li")
        found = [e.attributes.get("class") for e in items]
        assert [word for word in found if word in ("yes", "no")] == words


def test_green_shows_its_evidence() -> None:
    text = text_of(trees.green())
    for line in (
        "All keys compared yes 35 of 35 keys equal; 0 missing, 0 extra, 0 not comparable",
        "Control yes fired: 1 ULP at t34_l19_qrope element 12, found at that key",
        "State before yes 2 of 2 parts equal, 65 rows in all",
        "State after yes 2 of 2 parts equal, 65 rows in all",
        "Weights yes digest ac1981aa9c771701 on both sides",
        "Greedy choice yes same token at 1 of 1 positions",
    ):
        assert line in text
    assert "Evidence" not in text_of(trees.red())


def test_evidence_that_is_not_there_is_not_shown() -> None:
    text = text_of(replace(trees.green(), states=[], control=None, greedy=[], ref={}, dut={}))
    assert "All keys compared yes" in text
    for word in ("Control", "State before", "Weights yes", "Greedy choice"):
        assert word not in text


def test_a_panel_without_data_is_absent() -> None:
    assert sections(trees.not_run()) == []
    assert sections(trees.tensor_files()) == ["keys", "key", "provenance"]
    assert sections(trees.two_column()) == ["evidence", "map", "key", "provenance"]
    assert sections(trees.red()) == ["map", "key", "states", "greedy", "provenance"]
    assert sections(trees.contaminated())[:3] == ["states", "decode", "map"]
    assert "search" in sections(trees.bisected())


def test_decode_panel_shows_its_own_first_key() -> None:
    tree = replace(trees.contaminated(), decode=trees.red())
    page = html_page.read(render(tree))
    strip = page.by_id("decode-key-strip")
    assert strip is not None
    assert f"diverged, first at {trees.FIRST}" in page.text
    assert "3e0e01e2" in page.text
    assert html_page.problems(render(tree)) == []


def test_a_tree_that_contradicts_itself_is_not_shown() -> None:
    with pytest.raises(ParityBug, match="contradicts itself"):
        render(replace(trees.red(), verdict=Verdict.SAME, level=Level.BIT))


def test_of_an_unstable_side_the_map_shows_its_runs() -> None:
    """The sides of the comparison shown are two runs, and are never called ref and dut."""
    page = html_page.read(render(trees.shaky()))
    assert page.data["names"] == ["run 1", "run 7"]
    read = page.by_id("read")
    assert read is not None
    assert re.fullmatch(r"t33_l4_x  differs, first  run 1 \w+ f32\[64\]  run 7 .*", read.text)


# Nothing lost, nothing cut


@each_tree
def test_every_key_and_hash_is_in_the_file(build: Callable[[], Tree]) -> None:
    tree = build()
    page = html_page.read(render(tree))
    if page.data is None:
        words = [part for row in tree.keys for part in (row.key, *f"{row.ref} {row.dut}".split())]
        assert [word for word in words if word != "None" and word not in page.text] == []
        return
    wanted = {f"{r.segment}/{r.key}": (state_name(r), r.ref or "", r.dut or "") for r in tree.keys}
    assert html_page.listed_keys(page) == wanted


def test_red_a_lost_or_changed_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = html_page.listed_keys(html_page.read(render(trees.red())))
    real = html_data.script_data
    monkeypatch.setattr(
        html_data,
        "script_data",
        lambda *given: {**(data := real(*given)), "hashes": [*data["hashes"][:-1], "0"]},
    )
    assert html_page.listed_keys(html_page.read(render(trees.red()))) != whole


@pytest.mark.parametrize("size", [5, 70, 3000])
def test_nothing_is_cut(size: int) -> None:
    tree, words = long_tree(size)
    page = html_page.read(render(tree))
    assert [word for word in words if word not in page.text] == []
    assert not any(dots in page.text for dots in ("\u2026", "..."))


def test_every_header_and_setting_is_in_the_file() -> None:
    tree = replace(trees.red(), ref={**trees.REF, "tokens": ",".join(map(str, range(900)))})
    text = html_page.read(render(tree)).text
    for words in (tree.ref, tree.dut, tree.run):
        assert [part for pair in words.items() for part in pair if part not in text] == []


def test_element_values_and_changed_digits() -> None:
    html = render(trees.red())
    text = html_page.read(html).text
    for element in trees.ELEMENTS:
        assert all(str(part) in text for part in element[1:5])
    assert "<i>3e0e</i><i>01e<u>1</u></i>" in html
    assert "<i>3de7</i><i>151<u>2</u></i>" in html
    assert html.count("<u>") == 2 * len(trees.ELEMENTS)  # never in a hash


def test_digits_of_other_lengths_are_not_marked() -> None:
    row = replace(trees.elements().rows[0], ref_hex="3e0e", dut_hex="3e0e01e2")
    html = render(replace(trees.red(), elements=replace(trees.elements(), rows=[row])))
    assert "<u>" not in html


def test_bars_add_up_to_the_tensor() -> None:
    bins = [("1", 3), ("5 to 16", 2), ("NaN in dut", 1)]
    view = html_elements.elements_view(replace(trees.elements(), histogram=bins))
    assert sum(bar.count for bar in view.bars) == view.total == 128
    assert [(bar.label, bar.count) for bar in view.bars] == [*bins, ("equal", 122)]
    assert max(bar.share for bar in view.bars) == 100


def test_tensors_of_two_types_show_no_table() -> None:
    note = "dtypes differ: ref f32[4], dut f64[4]; elements are not compared"
    apart = Elements(trees.FIRST, "f32[4]", "f64[4]", 0, 0, None, "ULP", [], [], [], note)
    text = text_of(replace(trees.red(), elements=apart))
    assert note in text
    assert "Elements that differ" not in text


def test_long_lists_say_how_many_and_where_the_rest_is() -> None:
    rows = [KeyRow(f"w.{i}", KeyState.DIFFERS, f"{i:016x}", f"{i + 1:016x}") for i in range(300)]
    tree = replace(trees.tensor_files(), first="w.0", keys=rows, counts=trees.count(rows))
    html = render(tree, "run.json")
    text = joined(html_page.read(html).text)
    assert "Show the first 100" in text
    assert (
        "300 keys; this file lists the first 100, the JSON all (see the foot of the page)." in text
    )
    assert "w.99" in text
    assert "w.100" not in text
    assert "The whole tree is in run.json." in text
    assert "--json FILE writes all" in joined(html_page.read(render(tree)).text)


def test_an_integer_key_is_measured_in_steps() -> None:
    steps = replace(trees.elements(), unit="step", max_ulp=2)
    text = text_of(replace(trees.red(), elements=steps))
    assert "at most 2 steps" in text
    assert "Largest difference 2 steps" in text


def test_heading_of_elements_is_that_of_the_console() -> None:
    from parity_reports.console import ConsoleReport

    for element in (trees.elements(), replace(trees.elements(), key="t33_l7_other")):
        tree = replace(trees.red(), elements=element)
        head = html_elements.elements_view(element).head
        assert head in ConsoleReport().render(tree)
        assert head in text_of(tree)


# The program around it


def test_jinja2_is_imported_on_use() -> None:
    code = "import sys, parity_reports.html_report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_stream_gets_the_page_and_the_json_path() -> None:
    stream = io.StringIO()
    HtmlReport().write(trees.red(), stream, Options(json_path="<run>.json"))
    assert stream.getvalue() == render(trees.red(), "<run>.json")
    assert "The whole tree is in <run>.json." in html_page.read(stream.getvalue()).text
