"""The Markdown report: what stands in it, and that data is never markup in it."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parity.errors import ParityBug
from parity.presenting import Options, printable
from parity.status import Level, Verdict
from parity.tree import Tree
from parity_reports import markdown_checks, markdown_text
from parity_reports.markdown_report import MarkdownReport, render
from parity_reports.markdown_text import code, fence, prose, table
from tests.reports import trees
from tests.reports.check_runs import RUNS
from tests.reports.test_console_hostile import HOSTILE, hostile_births, hostile_tree

SIGNS = ("|", "`", "<b>", "[a](b)", "a`b", "``", "`", "\\|", "\\", "*x*", "_y_", "<!--", "&lt;")
WORDS = (*HOSTILE, *SIGNS, "@all", "#12", "a\nb", "$x$", "~~z~~", "t1_x|`")
each_word = pytest.mark.parametrize("word", WORDS)


class Page(HTMLParser):
    """A rendered report: its tags, its cells row by row, and what its fences hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.fences: list[str] = []
        self.text = ""
        self._block = ""
        self.feed(MarkdownIt("commonmark").enable("table").render(text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._block = "cell"
        elif tag == "pre":
            self.fences.append("")
            self._block = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "pre"):
            self._block = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._block == "cell":
            self.rows[-1][-1] += data
        elif self._block == "pre":
            self.fences[-1] += data


# What a report is made of; a tag of the data would be another one.
TAGS = {"h3", "p", "strong", "code", "pre", "table", "thead", "tbody", "tr", "th", "td"}


# --- signs ----------------------------------------------------------------------------------------


@each_word
def test_text_code_and_fences_come_out_as_they_went_in(word: str) -> None:
    shown = printable(word)
    page = Page("\n".join(["", *table(("a", "b"), [(prose(word), code(word))])]))
    assert page.rows == [["a", "b"], [shown, shown]]
    assert set(page.tags) <= TAGS
    assert Page("\n".join(fence([word, "x"]))).fences == [f"{shown}\nx\n"]
    assert Page(f"A {prose(word)} and {code(word)}.").text.strip() == f"A {shown} and {shown}."


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet="|`<>[]\\*_ #@&ab:1t", max_size=12))
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    page = Page("\n".join(["", *table(("a", "b", "c"), [(prose(text), code(text), "end")])]))
    one = re.sub(" {2,}", " ", text).strip()
    assert [cell.strip() for cell in page.rows[1][::2]] == [one, "end"]
    assert page.rows[1][1].strip() == text.strip()
    assert set(page.tags) <= TAGS


@pytest.mark.parametrize("name", ["_SIGNS", "bars", "ticks"])
def test_red_a_sign_that_is_not_escaped_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"_SIGNS": ("<b>", "x"), "bars": ("x", "a|b"), "ticks": ("x", "a`b")}[name]
    if name == "_SIGNS":
        monkeypatch.setattr(markdown_text, "_SIGNS", re.compile("(never)"))
    elif name == "ticks":
        monkeypatch.setattr(markdown_text, "_longest_run", lambda _: 0)
    line = table(("a", "b"), [(prose(rows[0]), code(rows[1]))])
    if name == "bars":
        line = [part.replace("\\|", "|") for part in line]
    page = Page("\n".join(["", *line]))
    assert page.rows[1] != list(rows) or not set(page.tags) <= TAGS


# --- trees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))
def test_every_tree_is_a_page_of_known_parts(build: Callable[[], Tree]) -> None:
    tree = build()
    page = Page(render(tree))
    assert set(page.tags) <= TAGS
    assert page.tags.count("h3") == 1
    assert page.text.strip().startswith("parity: ")
    if tree.reproduce:
        assert page.fences[0].startswith(f"{tree.reproduce}\n")
    widths = {len(row) for row in page.rows}
    assert widths <= {2, 3, 4, 5, 7}


def test_the_order_is_verdict_cause_command_facts_key_births() -> None:
    text = render(trees.explained())
    parts = (
        "### parity: **DIVERGED** first at `t33_l7_attn`, born here\n",
        "**Cause:** attention (contract 1.8); inputs equal: k, ks, qrope\n",
        "expf differs in 2 of 264 calls, at most 1 ULP, first at bf8c51e2",
        f"Reproduce:\n\n```text\n{trees.COMMAND}\nparity replay 'repro/run 1'\n```\n",
        "| keys | 5 of 35 differ: 1 born here, 4 inherited; 1 masked |\n",
        "| level | greedy (asked for: bit); same token at 1 of 1 positions |\n",
        "| `t33_l7_attn` | born here | `5c55827df1d1b1a4 f32\\[4,32\\]` |".replace("\\", ""),
        "6 of 128 elements differ, at most 1 ULP: head 1 4, head 2 2\n",
        "Differences begin at:\n\n| born | op | ref | dut | on the ref's inputs |\n",
        "| `t33_l8_act` | swiglu (contract 1.9) | ",
    )
    places = [text.find(part) for part in parts]
    assert places == sorted(places)
    assert places[0] == 0


def test_every_birth_has_a_row_up_to_twelve_and_the_rest_is_counted() -> None:
    found = [trees.birth(f"t33_l{layer}_attn") for layer in range(30)]
    births = replace(trees.births(), found=found)
    text = render(replace(trees.explained(), births=births), "out/run.json")
    rows = [row for row in Page(text).rows if len(row) == 5]
    assert [row[0] for row in rows] == ["born", *(birth.key for birth in found[:12])]
    assert "\n18 more in out/run.json\n" in text
    assert "more" not in render(trees.explained())
    assert "\n18 more with --json FILE\n" in render(replace(trees.explained(), births=births))


def test_births_that_may_be_missing_say_so() -> None:
    births = replace(trees.births(), complete=False, reason="stopped after 1 s")
    text = render(replace(trees.explained(), births=births))
    assert "\nincomplete: stopped after 1 s\n" in text


def test_green_says_same_once_and_has_no_births() -> None:
    text = render(trees.green())
    assert text.startswith("### parity: **SAME** 35 of 35 keys equal, bit for bit\n")
    assert "begin at" not in text
    assert "| control | fired: 1 ULP at `t34_l19_qrope` element 12, found at that key |" in text


def test_not_run_says_what_is_missing_and_the_next_step() -> None:
    text = render(trees.not_run())
    assert text.startswith("### parity: **NOT RUN** cuda: no NVIDIA driver")
    assert Page(text).fences == [
        "parity diff --dut emu    the same kernels on the CPU, labelled emulated\n"
        "parity doctor            what this machine can run\n"
    ]


def test_a_contaminated_start_does_not_name_a_false_lead() -> None:
    text = render(trees.contaminated())
    assert "**Start:** K 1 of 96 rows differ" in text
    assert "t33_l6_ks" not in text
    decoded = render(trees.decode_explained())
    assert "| `t33_l7_attn` | born here |" in decoded
    assert "In the decoding differences begin at:" in decoded


def test_a_level_that_holds_stands_in_the_headline() -> None:
    tree = replace(trees.red(), level=Level.LOGITS, level_asked=Level.GREEDY)
    assert render(tree).split("\n")[0].endswith(", level logits holds, as asked")


@each_word
def test_hostile_words_are_data(word: str) -> None:
    tree = replace(hostile_tree(word), births=replace(hostile_births(word), complete=True))
    text = render(tree)
    page = Page(text)
    shown = printable(word)
    assert set(page.tags) <= TAGS
    assert page.tags.count("h3") == 1
    assert page.fences[0].split("\n")[0] == f"parity compare {shown}"
    assert ["note", shown] in page.rows
    key_rows = [row for row in page.rows if len(row) in (4, 5) and row[0] == shown]
    assert [len(row) for row in key_rows] == [4, 5]
    assert f"{trees.hash_text(1)} f32[4]" in key_rows[0]


def test_red_a_contradiction_is_refused() -> None:
    with pytest.raises(ParityBug, match="contradicts itself"):
        render(replace(trees.red(), verdict=Verdict.SAME, level=Level.BIT))


def test_stream_gets_the_report() -> None:
    stream = io.StringIO()
    MarkdownReport().write(trees.isolated(), stream, Options(json_path="x.json"))
    assert stream.getvalue() == render(trees.isolated(), "x.json")
    assert html.unescape(stream.getvalue()).isascii()


# --- checks ---------------------------------------------------------------------------------------


def test_red_checks_name_the_key_and_the_line_that_makes_it_again() -> None:
    text = markdown_checks.render(RUNS["red and green"])
    page = Page(text)
    assert page.rows[1:] == [
        ["isodiff", "diverged", "M = 3, pos 33; the keys are equal; first key t33_l1_attn", "92"],
        ["rollback", "same", "M = 2: 9 of 9 checks", "40"],
    ]
    assert page.fences == [
        "[SPECTOP1] pos=33\ncause  attention, row 2 of 3\n",
        "parity isodiff --m 3\n",
    ]


@pytest.mark.parametrize("name", RUNS)
def test_each_run_of_checks_is_a_page_of_known_parts(name: str) -> None:
    run = RUNS[name]
    page = Page(markdown_checks.render(run))
    assert set(page.tags) <= TAGS
    assert f": {run.called} {run.said}" in page.text.split("\n")[0]
    assert len(page.rows) == 1 + len(run.checks)
    if run.verdict is Verdict.SAME:
        assert "Reproduce" not in page.text


def test_a_long_list_of_claims_shows_those_that_are_not_the_same() -> None:
    run = RUNS["red and green"]
    red, green = run.checks
    kept = tuple(replace(green, name=f"claim {number}") for number in range(30))
    text = markdown_checks.render(replace(run, checks=(*kept[:9], red, *kept[9:])))
    assert [row[0] for row in Page(text).rows] == ["claim", "isodiff"]
    assert "\n30 of 31 claims: same\n" in text
    all_same = replace(run, checks=kept, verdict=Verdict.SAME)
    assert "\n30 of 30 claims: same\n" in markdown_checks.render(all_same)
    counted = replace(all_same, checks=(replace(green, compared=0),))
    assert Page(markdown_checks.render(counted)).rows[0] == ["claim", "verdict", "found"]


@each_word
def test_hostile_checks_are_data(word: str) -> None:
    run = RUNS["red and green"]
    check = replace(run.checks[0], name=word, said=word, details=(word,), reproduce=word)
    told = markdown_checks.render(
        replace(run, name=word, said=word, checks=(check,), facts={word: word})
    )
    page, shown = Page(told), printable(word)
    assert set(page.tags) <= TAGS
    assert page.rows[1][0] == shown
    assert page.rows[-1] == [shown, shown]
    assert page.fences == [f"{shown}\n", f"{shown}\n"]
